// The view in the fragment of the URL, so that it can be shared and survives a reload.

import { NO_ABLATION, ablationBody } from "./ablation.js";

const DEBOUNCE = 200;
const CHOICES = ["compare", "given", "predicted", "truth", "error", "change", "dependence", "window"];

// How every setting is written, read and validated; read returns undefined for invalid text.
const integer = (min, max) => ({
  write: String,
  read: (text, run) => (/^-?\d+$/.test(text) && Number(text) >= min && Number(text) <= max(run) ? Number(text) : undefined),
});
const flag = { write: (value) => (value ? "1" : "0"), read: (text) => ({ 0: false, 1: true })[text] };
const oneOf = (...names) => ({ write: String, read: (text) => (names.includes(text) ? text : undefined) });
const numbers = (min, max, digits = 7) => ({
  write: (values) => values.map((value) => Number(value.toPrecision(digits))).join(","),
  read: (text) => {
    const values = text.split(",").map(Number);
    return values.length >= min && values.length <= max && text && values.every(Number.isFinite) ? values : undefined;
  },
});
const points = (max) => ({
  write: (values) => values.map((point) => numbers(1, 3).write(point)).join(";"),
  read: (text) => {
    const values = text.split(";").map(numbers(1, 3).read);
    return values.length <= max && values.every((point) => point?.length === values[0].length) ? values : undefined;
  },
});
const lastMode = (run) => (run.operator?.num_modes ?? 0) - 1;

const SETTINGS = {
  example: integer(0, (run) => run.examples.length - 1),
  variable: integer(0, (run) => run.outputs.length - 1),
  shown: oneOf(...CHOICES),
  given: integer(0, (run) => Math.max(run.history, run.inputs.length) - 1),
  tool: oneOf("ask", "paint", "look"),
  point: numbers(1, 3),
  layer: integer(0, (run) => run.operator?.num_layers ?? 0),
  mode: integer(0, lastMode),
  partner: integer(0, lastMode),
  step: integer(1, () => 1000),
  modesColour: oneOf("energy", "dependence"),
  showsWindows: flag,
  showsParticles: flag,
  gaussian: integer(-1, (run) => (run.operator?.num_gaussians ?? 0) - 1),
  particleColour: oneOf("weight", "layer"),
  particleSize: { write: String, read: (text) => (Number(text) > 0 && Number(text) < 10 ? Number(text) : undefined) },
  advector: integer(0, (run) => (run.operator?.transports?.length ?? 0) * (run.operator?.num_gaussians ?? 0) - 1),
  flowSpeed: integer(0, () => 4),
  tracers: points(16),
  fitsColours: flag,
  isSmooth: flag,
  showsCoast: flag,
  showsMixture: flag,
  mixtureSize: integer(1, () => 200),
  showsNearby: flag,
  rankedKind: oneOf("all", "layer", "head", "ring", "mode", "particle"),
};

export class Address {
  // defaults: the settings of a newly opened page; only differences are written.
  constructor(store, defaults) {
    this.store = store;
    this.defaults = defaults;
    store.on([...Object.keys(SETTINGS), "ablation", "box", "geometry"], () => this.writeSoon());
    window.addEventListener("hashchange", () => this.follow());
  }

  writeSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), DEBOUNCE);
  }

  write() {
    const text = writeTo(this.store, this.defaults);
    this.text = text;
    const { pathname, search, hash } = window.location;
    if (hash.slice(1) !== text) window.history.replaceState(null, "", `${pathname}${search}${text ? "#" : ""}${text}`);
  }

  // Follows an address that the user entered: settings that it omits return to their defaults.
  follow() {
    const text = window.location.hash.slice(1);
    if (text === this.text) return;
    const { view, ...settings } = readFrom(text, this.store.run);
    const { geometry } = this.store;
    if (view.slice && geometry?.numAxes === 3) geometry.setSlice(view.slice.axis, view.slice.fraction);
    this.store.set({ ...this.defaults, ...settings, box: view.box ?? geometry?.homeBox() ?? null });
  }

  // The current address.
  get href() {
    clearTimeout(this.timer);
    this.write();
    return window.location.href;
  }
}

function writeTo(store, defaults) {
  const parts = new URLSearchParams();
  for (const [name, { write }] of Object.entries(SETTINGS)) {
    if (store[name] === defaults[name] || store[name] === null || store[name].length === 0) continue;
    // The mode that the page selected itself matters only if its window is shown.
    const isAutomatic = name === "mode" && store.mode === store.strongest && !store.showsWindows && store.shown !== "window";
    if (!isAutomatic) parts.set(name, write(store[name]));
  }
  const { modes, layers, sites } = ablationBody(store.ablation);
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

// Returns the settings in an address; `view` holds the box and the slice, which need the sites.
export function readFrom(text, run) {
  const parts = new URLSearchParams(text);
  const settings = { view: {} };
  for (const [name, { read }] of Object.entries(SETTINGS)) {
    const value = parts.has(name) ? read(parts.get(name), run) : undefined;
    if (value !== undefined) settings[name] = value;
  }
  if (!run.reasons.ablation) settings.ablation = readAblation(parts, run);
  const box = numbers(4, 4).read(parts.get("box") ?? "");
  if (box && box[1] > box[0] && box[3] > box[2]) {
    settings.view.box = { left: box[0], right: box[1], bottom: box[2], top: box[3] };
  }
  const slice = numbers(2, 2).read(parts.get("slice") ?? "");
  if (slice && [0, 1, 2].includes(slice[0])) {
    settings.view.slice = { axis: slice[0], fraction: Math.min(1, Math.max(0, slice[1])) };
  }
  return settings;
}

function readAblation(parts, run) {
  const { num_layers: layers, num_modes: modes } = run.operator;
  const items = (name) => (parts.get(name) ?? "").split(",").filter(Boolean);
  const isBelow = (number, count) => Number.isInteger(number) && number >= 0 && number < count;
  const pairs = items("offModes").map((pair) => pair.split(".").map(Number));
  return {
    ...NO_ABLATION,
    modes: new Set(pairs.filter(([layer, mode]) => isBelow(layer, layers) && isBelow(mode, modes)).map(String)),
    layers: new Set(items("offLayers").map(Number).filter((layer) => isBelow(layer, layers))),
    sites: new Set(items("offSites").flatMap((range) => expandRange(range, run.num_sites))),
  };
}

// Returns increasing integers as ranges, such as 3-7,12.
function ranges(sites) {
  const pairs = [];
  for (const site of sites) {
    const last = pairs.at(-1);
    if (last && last[1] === site - 1) last[1] = site;
    else pairs.push([site, site]);
  }
  return pairs.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`)).join(",");
}

function expandRange(range, count) {
  const [first, last = first] = range.split("-").map(Number);
  if (!Number.isInteger(first) || !Number.isInteger(last) || first < 0 || last < first || last >= count) return [];
  return Array.from({ length: last - first + 1 }, (_, n) => first + n);
}
