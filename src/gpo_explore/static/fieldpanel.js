// The panel of the field: prediction, truth and error side by side or one field alone, particles and
// windows over it, and what the pointer does.

import { withSites } from "./ablation.js";
import { arrange, settle } from "./arrange.js";
import { coastlines, drawCoast } from "./coast.js";
import { endsOf, SEQUENTIAL, short } from "./colours.js";
import { isSeries, markChosen, radios } from "./controls.js";
import { FieldView } from "./field.js";
import { setUpFieldTools } from "./fieldtools.js";
import { legend } from "./legend.js";
import { themeColour } from "./picture.js";
import { complain } from "./problem.js";
import { fieldOf, missing, SEEN, TITLES } from "./shownfield.js";
import { element } from "./store.js";

const CANVASES = ["field", "field-truth", "field-error"];
const COMPARED = ["predicted", "truth", "error"];
const PARTIAL = 8 / 12;
const LEAST_HEIGHT = 300;
const HINT = "Point at a picture to read values; a click asks on what a point depends.";

export class FieldPanel {
  constructor(store) {
    this.store = store;
    // What others draw over the first picture: functions of its context and the picture.
    this.overlays = [];
    const on = {
      ask: (point) => store.set({ point }),
      paint: (sites, isOff) => store.set({ ablation: withSites(store.ablation, sites, isOff) }),
      hover: (place, view) => this.hover(place, view),
    };
    this.views = CANVASES.map((id) => new FieldView(element(id), store, on));
    this.view = this.views[0];
    this.offer();
    setUpFieldTools(store, this.view);
    element("hover").textContent = HINT;
    const drawn = ["shown", "variable", "given", "frames", "prediction", "dependence", "box", "windows", "cloud", "gaussian",
      "particleColour", "particleSize", "fitsColours", "layer", "theme", "point", "isSmooth", "coast", "showsWindows"];
    store.on(["geometry", "shown"], () => this.arrange());
    store.on(drawn, () => this.draw());
    store.on(["dependence"], () => this.offer());
    store.on(["geometry", "showsCoast"], () => this.loadCoast());
    window.addEventListener("resize", () => this.arrange());
  }

  get isCompared() {
    return this.store.shown === "compare";
  }

  // Offers the fields there are; what a point depends on only after one was chosen.
  offer() {
    const { store } = this;
    const { reasons } = store.run;
    const choices = [
      { value: "compare", text: "Side by side" }, { value: "given", text: "Given" }, { value: "predicted", text: "Predicted" },
      { value: "truth", text: "Truth" }, { value: "error", text: "Error" },
      { value: "change", text: "Change", reason: reasons.ablation },
      { value: "dependence", text: "Depends on", reason: store.dependence ? undefined : "Ask a point first." },
      { value: "window", text: "Window", reason: reasons.modes ?? (store.modes ? undefined : "A model without layers has no windows.") },
    ];
    this.buttons = radios("shown", choices, store.shown, (shown) => store.set({ shown }));
  }

  // Gives the pictures the sizes that the screen allows; what is not wide leaves room beside it.
  arrange() {
    const { geometry } = this.store;
    if (!geometry) return;
    const main = document.querySelector("main");
    const count = this.isCompared ? 3 : 1;
    this.views.forEach(({ canvas }, n) => (canvas.parentElement.hidden = n >= count));
    const style = getComputedStyle(main);
    const whole = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const pictures = element("pictures");
    const above = pictures.getBoundingClientRect().top + window.scrollY;
    const below = window.innerWidth > 760 ? 136 : 60;
    const height = Math.max(LEAST_HEIGHT, window.innerHeight - above - below);
    const inner = (width) => ({ width: width - 26, height });
    const wide = arrange(count, geometry, inner(whole));
    const partial = arrange(count, geometry, inner(PARTIAL * whole));
    const isBeside = window.innerWidth > 1180 && wide.area < 1.15 * partial.area;
    main.classList.toggle("beside", isBeside);
    settle(this.views.slice(0, count).map(({ picture }) => picture), isBeside ? partial : wide);
    this.draw();
  }

  async loadCoast() {
    const { store } = this;
    if (!store.geometry?.is_sphere || !store.showsCoast) return store.set({ coast: null });
    try {
      store.set({ coast: await coastlines() });
    } catch (error) {
      complain("coast", error);
    }
  }

  draw() {
    const { store } = this;
    if (!store.frames || !store.prediction || !store.geometry) return;
    const sizes = [store.prediction.arrays.predicted.shape[0], store.frames.arrays.truth.shape[0]];
    if (sizes.some((size) => size !== store.geometry.numSites)) return;
    const lack = missing(store, store.shown);
    if (lack) {
      element("field-seen").textContent = lack;
      return;
    }
    const wanted = this.isCompared ? COMPARED : [store.shown];
    this.shown = wanted.map((shown) => fieldOf(store, shown));
    [this.now] = this.shown;
    markChosen(this.buttons, store.shown);
    this.shown.forEach((field, n) => this.drawOne(field, n));
    this.describe();
  }

  drawOne(field, n) {
    const { geometry, box, ablation, cloud, isSmooth, coast, ...store } = this.store;
    const isFirst = n === 0;
    this.views[n].show({
      geometry, box, values: field.values, scale: field.scale, units: field.units, isSmooth,
      ablated: isFirst && ablation.sites.size ? ablation.sites : null,
      outlines: isFirst ? this.outlines() : [], curves: this.curves(field, isFirst),
      over: (context, picture) => {
        if (coast) drawCoast(context, picture, coast);
        if (!isFirst) return;
        if (cloud) {
          this.cloudScale = cloud.draw(context, picture, {
            gaussian: store.gaussian, by: store.particleColour, layer: store.layer, size: store.particleSize,
          });
        }
        for (const draw of this.overlays) draw(context, picture);
      },
    });
    const [low, high] = endsOf(field.values, geometry.known);
    this.views[n].canvas.setAttribute(
      "aria-label", `${field.name}, ${field.shown}: from ${short(low)} to ${short(high)} ${field.units}`,
    );
    const when = document.createElement("small");
    when.textContent = [whenOf(this.store, field.shown), geometry.sliceWords].filter(Boolean).join(", ");
    element(`${CANVASES[n]}-caption`).replaceChildren(`${TITLES[field.shown]} `, when);
  }

  describe() {
    const { store } = this;
    element("field-seen").textContent = SEEN[store.shown];
    const items = [];
    const [field] = this.shown;
    if (store.geometry.numAxes === 1) {
      items.push({ text: TITLES[field.shown].toLowerCase(), colour: themeColour("curve") });
      if (field.truth) items.push({ text: "truth", colour: themeColour("faint"), style: "dashed" });
    }
    items.push(...this.windowItems(), ...this.particleItems());
    if (store.ablation.sites.size) items.push({ text: "painted off", style: "hatched" });
    legend("legend", items);
  }

  windowItems() {
    const { store } = this;
    const { modes, mode, partner } = store;
    if (!store.showsWindows || !store.windows.length) return [];
    const style = store.geometry.numAxes === 1 ? "dotted" : "";
    const names = modes.isPaper
      ? [`window of ${modes.name(mode)}, at half its height`, `window of ${modes.name(partner ?? mode)}`]
      : [`${modes.name(mode)}: cosine, where it is zero`, "sine"];
    return store.windows.map((_, n) => ({ text: names[n], colour: themeColour(["first", "second"][n]), style }));
  }

  particleItems() {
    const { store } = this;
    if (!store.cloud || !this.cloudScale) return [];
    const [low, high] = this.cloudScale.limits.map(short);
    const layered = store.run.operator?.variant === "paper" ? "basis" : "energy of the site";
    const where = store.layer ? `after layer ${store.layer}` : "before layer 1";
    const by = store.particleColour === "weight" ? "weight" : `${layered} ${where}`;
    const drawn = store.cloud.displacements ? "arrows from where what arrives came from" : `ellipses of ${store.particleSize} σ`;
    const height = store.geometry.numAxes === 1 ? ", as high as their weight" : "";
    return [{ text: `${drawn}${height}; ${by} ${low} to ${high}`, palette: SEQUENTIAL }];
  }

  outlines() {
    const { store } = this;
    if (!store.showsWindows) return [];
    const colours = [themeColour("first"), themeColour("second")];
    return store.windows.map((window, n) => {
      const [low, high] = endsOf(window, store.geometry.known);
      return { window, level: (low + high) / 2, colour: colours[n] };
    });
  }

  // In one dimension the truth and the windows are curves beside the field.
  curves(field, isFirst) {
    if (this.store.geometry.numAxes > 1 || !isFirst) return [];
    const curves = this.outlines().map(({ window, colour }) => {
      const [low, high] = endsOf(window, this.store.geometry.known);
      const [least, most] = field.scale.limits;
      const values = window.map((value) => least + ((value - low) / (high - low || 1)) * (most - least));
      return { values, colour, dash: [2, 3] };
    });
    if (field.truth) curves.push({ values: field.truth, colour: themeColour("faint"), dash: [6, 4] });
    return curves;
  }

  hover(place, view) {
    const { store } = this;
    for (const other of this.views) other.point(other === view ? null : place);
    const line = element("hover");
    if (!place || !this.shown) {
      line.textContent = HINT;
      return;
    }
    const [x, y] = place;
    const site = store.geometry.siteAt(x, y);
    const isKnown = site >= 0 && store.geometry.known[site];
    const value = ({ shown, values, units }) =>
      `${this.isCompared ? `${{ error: "error" }[shown] ?? shown} ` : ""}${short(values[site])} ${this.isCompared && shown !== "error" ? "" : units}`.trim();
    const values = isKnown ? this.shown.map(value).join(", ") : "nothing here";
    const [px, py] = view.picture.toPixel(x, y);
    const particle = store.cloud && view === this.view ? store.cloud.words(px, py, store.geometry) : "";
    line.textContent = `${view.words(place)}: ${values}${particle ? `; ${particle}` : ""}`;
  }
}

// Returns the date or time of what is shown.
function whenOf({ run, example, given }, shown) {
  if (!isSeries(run) || shown === "window") return "";
  const { labels } = run.examples[example];
  return shown === "given" ? labels[given] : labels.at(-1);
}
