// The field panel: prediction, truth and error side by side, or one field with particles and windows
// drawn over it, and the values at the pointer.

import { withSites } from "./ablation.js";
import { applyLayout, arrange } from "./arrange.js";
import { coastlines, drawCoast } from "./coast.js";
import { format, rangeOf, SEQUENTIAL } from "./colours.js";
import { isSeries, markSelected, radios } from "./controls.js";
import { FieldView } from "./field.js";
import { setUpFieldTools } from "./fieldtools.js";
import { legend } from "./legend.js";
import { themeColour } from "./picture.js";
import { showError } from "./problem.js";
import { DESCRIPTIONS, fieldOf, missing, TITLES } from "./shownfield.js";
import { element, make } from "./store.js";

const CANVASES = ["field", "field-truth", "field-error"];
const COMPARED = ["predicted", "truth", "error"];
const PARTIAL_WIDTH = 8 / 12;
const MIN_HEIGHT = 300;
const HINT = "Point at a picture to read values. Click to query a point.";

export class FieldPanel {
  constructor(store) {
    this.store = store;
    // Functions of other panels that draw over the first picture, called with its context and the picture.
    this.overlays = [];
    const on = {
      query: (point) => store.set({ point }),
      mask: (sites, isOff) => store.set({ ablation: withSites(store.ablation, sites, isOff) }),
      hover: (position, view) => this.hover(position, view),
    };
    this.views = CANVASES.map((id) => new FieldView(element(id), store, on));
    this.view = this.views[0];
    this.setUpChoices();
    setUpFieldTools(store, this.view);
    element("hover").textContent = HINT;
    const dependencies = ["shown", "variable", "given", "frames", "prediction", "dependence", "box", "windows", "cloud", "gaussian",
      "particleColour", "particleSize", "fitsColours", "layer", "theme", "point", "isSmooth", "coast", "showsWindows"];
    store.on(["geometry", "shown"], () => this.arrange());
    store.on(dependencies, () => this.draw());
    store.on(["dependence"], () => this.setUpChoices());
    store.on(["geometry", "showsCoast"], () => this.loadCoast());
    window.addEventListener("resize", () => this.arrange());
  }

  get isCompared() {
    return this.store.shown === "compare";
  }

  // Creates the choice of fields; the attribution is enabled once a point is queried.
  setUpChoices() {
    const { store } = this;
    const { reasons } = store.run;
    const choices = [
      { value: "compare", text: "Side by side" }, { value: "given", text: "Input" }, { value: "predicted", text: "Predicted" },
      { value: "truth", text: "Truth" }, { value: "error", text: "Error" },
      { value: "change", text: "Change", reason: reasons.ablation },
      { value: "dependence", text: "Attribution", reason: store.dependence ? undefined : "Query a point first." },
      { value: "window", text: "Window", reason: reasons.modes ?? (store.modes ? undefined : "A model without layers has no windows.") },
    ];
    this.buttons = radios("shown", choices, store.shown, (shown) => store.set({ shown }));
  }

  // Sizes the pictures for the screen; narrow ones leave room for other panels beside them.
  arrange() {
    const { geometry } = this.store;
    if (!geometry) return;
    const main = document.querySelector("main");
    const count = this.isCompared ? 3 : 1;
    this.views.forEach(({ canvas }, n) => (canvas.parentElement.hidden = n >= count));
    const style = getComputedStyle(main);
    const fullWidth = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const pictures = element("pictures");
    const above = pictures.getBoundingClientRect().top + window.scrollY;
    const below = window.innerWidth > 760 ? 136 : 60;
    const height = Math.max(MIN_HEIGHT, window.innerHeight - above - below);
    const inner = (width) => ({ width: width - 26, height });
    const full = arrange(count, geometry, inner(fullWidth));
    const partial = arrange(count, geometry, inner(PARTIAL_WIDTH * fullWidth));
    const isPartial = window.innerWidth > 1180 && full.area < 1.15 * partial.area;
    main.classList.toggle("beside", isPartial);
    applyLayout(this.views.slice(0, count).map(({ picture }) => picture), isPartial ? partial : full);
    this.draw();
  }

  async loadCoast() {
    const { store } = this;
    const { coast } = store.run;
    if (!store.geometry || !(store.geometry.is_sphere || coast.length) || !store.showsCoast) return store.set({ coast: null });
    try {
      store.set({ coast: coast.length ? coast : await coastlines() });
    } catch (error) {
      showError("coast", error);
    }
  }

  draw() {
    const { store } = this;
    if (!store.frames || !store.prediction || !store.geometry) return;
    const sizes = [store.prediction.arrays.predicted.shape[0], store.frames.arrays.truth.shape[0]];
    if (sizes.some((size) => size !== store.geometry.numSites)) return;
    const reason = missing(store, store.shown);
    if (reason) {
      element("field-seen").textContent = reason;
      return;
    }
    this.fields = (this.isCompared ? COMPARED : [store.shown]).map((shown) => fieldOf(store, shown));
    markSelected(this.buttons, store.shown);
    this.fields.forEach((field, n) => this.drawField(field, n));
    this.describe();
  }

  drawField(field, n) {
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
    const [low, high] = rangeOf(field.values, geometry.active);
    this.views[n].canvas.setAttribute(
      "aria-label", `${field.name}, ${field.shown}: from ${format(low)} to ${format(high)} ${field.units}`,
    );
    const textContent = [timeOf(this.store, field.shown), geometry.sliceText].filter(Boolean).join(", ");
    element(`${CANVASES[n]}-caption`).replaceChildren(`${TITLES[field.shown]} `, make("small", { textContent }));
  }

  describe() {
    const { store } = this;
    element("field-seen").textContent = DESCRIPTIONS[store.shown];
    const items = [];
    const [field] = this.fields;
    if (store.geometry.numAxes === 1) {
      items.push({ text: TITLES[field.shown].toLowerCase(), colour: themeColour("curve") });
      if (field.truth) items.push({ text: "truth", colour: themeColour("faint"), style: "dashed" });
    }
    items.push(...this.windowItems(), ...this.particleItems());
    if (store.ablation.sites.size) items.push({ text: "masked", style: "hatched" });
    legend("legend", items);
  }

  windowItems() {
    const { store } = this;
    const { modes, mode, partner } = store;
    if (!store.showsWindows || !store.windows.length) return [];
    const style = store.geometry.numAxes === 1 ? "dotted" : "";
    const names = modes.isPaper
      ? [`window of ${modes.name(mode)}, at half its maximum`, `window of ${modes.name(partner ?? mode)}`]
      : [`${modes.name(mode)}: zeros of the cosine`, "sine"];
    return store.windows.map((_, n) => ({ text: names[n], colour: themeColour(["first", "second"][n]), style }));
  }

  particleItems() {
    const { store } = this;
    if (!store.cloud || !this.cloudScale) return [];
    const [low, high] = this.cloudScale.limits.map(format);
    const state = store.run.operator?.variant === "paper" ? "basis" : "energy of the site";
    const where = store.layer ? `after layer ${store.layer}` : "before layer 1";
    const by = store.particleColour === "weight" ? "weight" : `${state} ${where}`;
    const drawn = store.cloud.displacements ? "arrows from departure points to sites" : `ellipses of ${store.particleSize} σ`;
    const height = store.geometry.numAxes === 1 ? ", at the height of their weight" : "";
    return [{ text: `${drawn}${height}; ${by} ${low} to ${high}`, palette: SEQUENTIAL }];
  }

  outlines() {
    const { store } = this;
    if (!store.showsWindows) return [];
    const colours = [themeColour("first"), themeColour("second")];
    return store.windows.map((window, n) => {
      const [low, high] = rangeOf(window, store.geometry.active);
      return { window, level: (low + high) / 2, colour: colours[n] };
    });
  }

  // Returns the truth and the windows as curves, in one dimension.
  curves(field, isFirst) {
    if (this.store.geometry.numAxes > 1 || !isFirst) return [];
    const curves = this.outlines().map(({ window, colour }) => {
      const [low, high] = rangeOf(window, this.store.geometry.active);
      const [bottom, top] = field.scale.limits;
      const values = window.map((value) => bottom + ((value - low) / (high - low || 1)) * (top - bottom));
      return { values, colour, dash: [2, 3] };
    });
    if (field.truth) curves.push({ values: field.truth, colour: themeColour("faint"), dash: [6, 4] });
    return curves;
  }

  hover(position, view) {
    const { store } = this;
    for (const other of this.views) other.mark(other === view ? null : position);
    const line = element("hover");
    if (!position || !this.fields) {
      line.textContent = HINT;
      return;
    }
    const [x, y] = position;
    const site = store.geometry.siteAt(x, y);
    const isActive = site >= 0 && store.geometry.active[site];
    const value = ({ shown, values, units }) =>
      `${this.isCompared ? `${shown} ` : ""}${format(values[site])} ${this.isCompared && shown !== "error" ? "" : units}`.trim();
    const values = isActive ? this.fields.map(value).join(", ") : "no data";
    const [px, py] = view.picture.toPixel(x, y);
    const particle = store.cloud && view === this.view ? store.cloud.describe(px, py) : "";
    line.textContent = `${view.describe(position)}: ${values}${particle ? `; ${particle}` : ""}`;
  }
}

// Returns the date or time of a field.
function timeOf({ run, example, given }, shown) {
  if (!isSeries(run) || shown === "window") return "";
  const { labels } = run.examples[example];
  return shown === "given" ? labels[given] : labels.at(-1);
}
