// The view in the address, after the #: it can be shared, and survives a reload.

import { NOTHING, plain } from "./ablation.js";

const QUIET = 200;
const CHOICES = ["compare", "given", "predicted", "truth", "error", "change", "dependence", "window"];

// How every setting is written, read and checked. What cannot be read is left as it is.
const whole = (least, most) => ({
  write: String,
  read: (text, run) => (/^-?\d+$/.test(text) && Number(text) >= least && Number(text) <= most(run) ? Number(text) : undefined),
});
const flag = { write: (value) => (value ? "1" : "0"), read: (text) => ({ 0: false, 1: true })[text] };
const oneOf = (...names) => ({ write: String, read: (text) => (names.includes(text) ? text : undefined) });
const numbers = (least, most, digits = 7) => ({
  write: (values) => values.map((value) => Number(value.toPrecision(digits))).join(","),
  read: (text) => {
    const values = text.split(",").map(Number);
    return values.length >= least && values.length <= most && text && values.every(Number.isFinite) ? values : undefined;
  },
});
const points = (most) => ({
  write: (all) => all.map((point) => numbers(1, 3).write(point)).join(";"),
  read: (text) => {
    const all = text.split(";").map(numbers(1, 3).read);
    return all.length <= most && all.every((point) => point?.length === all[0].length) ? all : undefined;
  },
});
const modesOf = (run) => (run.operator?.num_modes ?? 0) - 1;

const SETTINGS = {
  example: whole(0, (run) => run.examples.length - 1),
  variable: whole(0, (run) => run.outputs.length - 1),
  shown: oneOf(...CHOICES),
  given: whole(0, (run) => Math.max(run.history, run.inputs.length) - 1),
  tool: oneOf("ask", "paint", "look"),
  point: numbers(1, 3),
  layer: whole(0, (run) => run.operator?.num_layers ?? 0),
  mode: whole(0, modesOf),
  partner: whole(0, modesOf),
  step: whole(1, () => 1000),
  modesColour: oneOf("energy", "dependence"),
  showsWindows: flag,
  showsParticles: flag,
  gaussian: whole(-1, (run) => (run.operator?.num_gaussians ?? 0) - 1),
  particleColour: oneOf("weight", "layer"),
  particleSize: { write: String, read: (text) => (Number(text) > 0 && Number(text) < 10 ? Number(text) : undefined) },
  carrier: whole(0, (run) => (run.operator?.transports?.length ?? 0) * (run.operator?.num_gaussians ?? 0) - 1),
  flowSpeed: whole(0, () => 4),
  tracers: points(16),
  fitsColours: flag,
  isSmooth: flag,
  showsCoast: flag,
  showsMixture: flag,
  mixtureSize: whole(1, () => 200),
  showsNearby: flag,
  rankedKind: oneOf("all", "layer", "head", "ring", "mode", "particle"),
};

export class Address {
  // defaults: the settings of a page that was just opened; only what differs is written.
  constructor(store, defaults) {
    this.store = store;
    this.defaults = defaults;
    store.on([...Object.keys(SETTINGS), "ablation", "box", "geometry"], () => this.writeSoon());
    window.addEventListener("hashchange", () => this.follow());
  }

  writeSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), QUIET);
  }

  write() {
    const text = written(this.store, this.defaults);
    this.text = text;
    const { pathname, search, hash } = window.location;
    if (hash.slice(1) !== text) window.history.replaceState(null, "", `${pathname}${search}${text ? "#" : ""}${text}`);
  }

  // Another address was entered by hand: it says all, so what it leaves out is as at the start.
  follow() {
    const text = window.location.hash.slice(1);
    if (text === this.text) return;
    const { view, ...settings } = readFrom(text, this.store.run);
    const { geometry } = this.store;
    if (view.slice && geometry?.numAxes === 3) geometry.cut(view.slice.axis, view.slice.fraction);
    this.store.set({ ...this.defaults, ...settings, box: view.box ?? geometry?.homeBox() ?? null });
  }

  // The whole address, as it is now.
  get href() {
    clearTimeout(this.timer);
    this.write();
    return window.location.href;
  }
}

export function written(store, defaults) {
  const parts = new URLSearchParams();
  for (const [name, { write }] of Object.entries(SETTINGS)) {
    if (store[name] === defaults[name] || store[name] === null || store[name].length === 0) continue;
    // The mode that the page chose itself is of interest once its window is seen.
    const isOwn = name === "mode" && store.mode === store.strongest && !store.showsWindows && store.shown !== "window";
    if (!isOwn) parts.set(name, write(store[name]));
  }
  const { modes, layers, sites } = plain(store.ablation);
  if (modes.length) parts.set("offModes", modes.map((pair) => pair.join(".")).join(","));
  if (layers.length) parts.set("offLayers", layers.join(","));
  if (sites.length) parts.set("offSites", ranges(sites));
  const { geometry, box } = store;
  if (geometry?.numAxes === 3) parts.set("slice", `${geometry.slice.axis},${geometry.slice.fraction}`);
  const home = geometry?.homeBox();
  if (box && home && Object.keys(home).some((side) => box[side] !== home[side])) {
    parts.set("box", numbers(4, 4, 13).write([box.left, box.right, box.bottom, box.top]));
  }
  return parts.toString().replaceAll("%2C", ",").replaceAll("%3B", ";");
}

// Returns the settings that an address names, with `view`: the box and the slice that wait for sites.
export function readFrom(text, run) {
  const parts = new URLSearchParams(text);
  const found = { view: {} };
  for (const [name, { read }] of Object.entries(SETTINGS)) {
    const value = parts.has(name) ? read(parts.get(name), run) : undefined;
    if (value !== undefined) found[name] = value;
  }
  if (!run.reasons.ablation) found.ablation = readAblation(parts, run);
  const box = numbers(4, 4).read(parts.get("box") ?? "");
  if (box && box[1] > box[0] && box[3] > box[2]) {
    found.view.box = { left: box[0], right: box[1], bottom: box[2], top: box[3] };
  }
  const slice = numbers(2, 2).read(parts.get("slice") ?? "");
  if (slice && [0, 1, 2].includes(slice[0])) {
    found.view.slice = { axis: slice[0], fraction: Math.min(1, Math.max(0, slice[1])) };
  }
  return found;
}

function readAblation(parts, run) {
  const { num_layers: layers, num_modes: modes } = run.operator;
  const listed = (name) => (parts.get(name) ?? "").split(",").filter(Boolean);
  const isBelow = (number, count) => Number.isInteger(number) && number >= 0 && number < count;
  const pairs = listed("offModes").map((pair) => pair.split(".").map(Number));
  return {
    ...NOTHING,
    modes: new Set(pairs.filter(([layer, mode]) => isBelow(layer, layers) && isBelow(mode, modes)).map(String)),
    layers: new Set(listed("offLayers").map(Number).filter((layer) => isBelow(layer, layers))),
    sites: new Set(listed("offSites").flatMap((range) => unrolled(range, run.num_sites))),
  };
}

// Returns increasing numbers as ranges: 3-7,12
export function ranges(sites) {
  const found = [];
  for (const site of sites) {
    const last = found.at(-1);
    if (last && last[1] === site - 1) last[1] = site;
    else found.push([site, site]);
  }
  return found.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`)).join(",");
}

function unrolled(range, count) {
  const [first, last = first] = range.split("-").map(Number);
  if (!Number.isInteger(first) || !Number.isInteger(last) || first < 0 || last < first || last >= count) return [];
  return Array.from({ length: last - first + 1 }, (_, n) => first + n);
}
