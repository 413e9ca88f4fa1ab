// The panel of the field: which field, particles and windows over it, and what the pointer does.

import { endsOf, scaleOf, short, signedScale } from "./colours.js";
import { fill, isSeries, markChosen, radios } from "./controls.js";
import { FieldView } from "./field.js";
import { suit, themeColour } from "./picture.js";
import { withSites } from "./ablation.js";
import { column, element } from "./store.js";

const SEEN = {
  given: "What the model is given.",
  predicted: "What the model predicts, without the parts that are off.",
  truth: "What really followed.",
  error: "Prediction minus truth, in the units of the variable.",
  change: "The prediction with parts off minus the whole one.",
  window: "The chosen window, orange in the outlines: what its mode measures at every site.",
  dependence: "Gradient × input: what every site adds to the prediction at the cross.",
};

export class FieldPanel {
  constructor(store) {
    this.store = store;
    this.view = new FieldView(element("field"), store, {
      ask: (point) => store.set({ point }),
      paint: (sites, isOff) => store.set({ ablation: withSites(store.ablation, sites, isOff) }),
      hover: (place) => this.hover(place),
    });
    this.setUp();
    const drawn = ["shown", "variable", "given", "frames", "prediction", "dependence", "box", "windows", "cloud",
      "gaussian", "particleColour", "particleSize", "fitsColours", "layer", "theme", "point"];
    store.on(drawn, () => this.draw());
    store.on(["dependence"], () => this.offer());
    store.on(["geometry"], () => suit(element("field"), store.geometry, 442, 56, 128));
    store.on(["particleSize"], () => (element("particle-size").value = store.particleSize));
  }

  setUp() {
    const { store } = this;
    this.offer();
    const { reasons, operator } = store.run;
    const tools = [
      { value: "ask", text: "Ask" },
      { value: "paint", text: "Paint off", reason: reasons.ablation },
      { value: "look", text: "Move" },
    ];
    const toolButtons = radios("tool", tools, store.tool, (tool) => store.set({ tool }));
    store.on(["tool"], () => markChosen(toolButtons, store.tool));
    element("brush").addEventListener("input", (event) => store.set({ brush: Number(event.target.value) }));
    element("zoom-in").addEventListener("click", () => this.view.zoom(1 / 1.5));
    element("zoom-out").addEventListener("click", () => this.view.zoom(1.5));
    element("zoom-home").addEventListener("click", () => this.view.home());
    const fit = element("fit-colours");
    fit.addEventListener("change", () => store.set({ fitsColours: fit.checked }));
    this.setUpParticles(reasons, operator);
    this.setUpGiven();
    const windows = element("show-windows");
    windows.disabled = Boolean(reasons.modes);
    windows.addEventListener("change", () => store.set({ showsWindows: windows.checked }));
  }

  // A series may be given as several frames, a map as several fields.
  setUpGiven() {
    const { store } = this;
    const { history, inputs } = store.run;
    const frames = Array.from({ length: history }, (_, n) => `frame ${n + 1} of ${history}`);
    const names = isSeries(store.run) ? frames : inputs.map(({ name }) => name);
    fill("given", names);
    const select = element("given");
    select.value = store.given;
    select.addEventListener("change", () => store.set({ given: Number(select.value) }));
    store.on(["shown"], () => (select.hidden = store.shown !== "given" || names.length < 2));
  }

  setUpParticles(reasons, operator) {
    const { store } = this;
    const show = element("show-particles");
    show.disabled = Boolean(reasons.particles);
    show.title = reasons.particles ?? "";
    show.addEventListener("change", () => store.set({ showsParticles: show.checked }));
    const count = operator?.num_gaussians ?? 0;
    const numbers = Array.from({ length: count }, (_, n) => n);
    const isMoving = operator?.variant === "geometric";
    const kind = isMoving ? "particle" : "Gaussian";
    fill("gaussian", ["heaviest", ...numbers.map((n) => `${kind} ${n + 1}`)], [-1, ...numbers]);
    // Arrows are as long as displacements.
    element("particle-size").disabled = isMoving;
    const layered = isMoving ? "energy Σ h²" : "basis z";
    const colours = operator?.num_layers ? ["weight", layered] : ["weight"];
    fill("particle-colour", colours, ["weight", "layer"]);
    for (const [id, name] of [["gaussian", "gaussian"], ["particle-colour", "particleColour"], ["particle-size", "particleSize"]]) {
      element(id).addEventListener("change", (event) => {
        const { value } = event.target;
        store.set({ [name]: id === "particle-colour" ? value : Number(value) });
      });
    }
  }

  // Offers the fields there are; what a point depends on only after one was chosen.
  offer() {
    const { store } = this;
    const choices = [
      { value: "given", text: "Given" }, { value: "predicted", text: "Predicted" },
      { value: "truth", text: "Truth" }, { value: "error", text: "Error" },
      { value: "change", text: "Change", reason: store.run.reasons.ablation },
      { value: "dependence", text: "Depends on", reason: store.dependence ? undefined : "Ask a point first." },
      { value: "window", text: "Window", reason: store.run.reasons.modes },
    ];
    this.buttons = radios("shown", choices, store.shown, (shown) => store.set({ shown }));
  }

  // Returns the values that are shown, their scale and units.
  chosen() {
    const { run, frames, prediction, dependence, geometry, variable, given } = this.store;
    let { shown } = this.store;
    const [window] = this.store.windows;
    if ((shown === "dependence" && !dependence) || (shown === "window" && !window)) shown = "predicted";
    const output = run.outputs[variable];
    const label = ({ name, units }) => units || name;
    const result = { shown, units: label(output), name: output.name };
    const truth = column(frames.arrays.truth, variable);
    const predicted = column(prediction.arrays.predicted, variable);
    if (shown === "given") {
      const [number, frame] = isSeries(run) ? [variable, given] : [given, 0];
      const input = run.inputs[number];
      const values = column(frames.arrays.given, number, frame);
      return { ...result, values, scale: this.scale(values, input), units: label(input), name: input.name };
    }
    if (shown === "truth") return { ...result, values: truth, scale: this.scale(truth, output) };
    if (shown === "predicted") return { ...result, values: predicted, scale: this.scale(predicted, output), truth };
    if (shown === "window") {
      const units = run.operator.variant === "paper" ? "weight p" : "cosine";
      return { ...result, values: window, scale: scaleOf(...endsOf(window, geometry.known)), units, name: "window" };
    }
    let values = predicted;
    if (shown === "dependence") values = dependence.arrays.regions.data;
    else {
      const other = shown === "error" ? truth : column(frames.arrays.whole, variable);
      values = predicted.map((value, n) => value - other[n]);
    }
    return { ...result, values, scale: signedScale(values, geometry.known) };
  }

  // Colours are the same for all times, unless those of this frame are wanted.
  scale(values, variable) {
    const { fitsColours, geometry } = this.store;
    return scaleOf(...(fitsColours ? endsOf(values, geometry.known) : variable.range));
  }

  draw() {
    const { store } = this;
    if (!store.frames || !store.prediction || !store.geometry) return;
    const sizes = [store.prediction.arrays.predicted.shape[0], store.frames.arrays.truth.shape[0]];
    if (sizes.some((size) => size !== store.geometry.numSites)) return;
    const chosen = this.chosen();
    this.now = chosen;
    markChosen(this.buttons, chosen.shown);
    const { geometry, box, ablation, cloud } = store;
    this.view.show({
      geometry, box, values: chosen.values, scale: chosen.scale, units: chosen.units,
      ablated: ablation.sites.size ? ablation.sites : null,
      outlines: this.outlines(), curves: this.curves(chosen),
      over: (context, picture) => {
        if (!cloud) return;
        this.cloudScale = cloud.draw(context, picture, {
          gaussian: store.gaussian, by: store.particleColour, layer: store.layer, size: store.particleSize,
        });
      },
    });
    this.describe(chosen);
  }

  describe(chosen) {
    const { store } = this;
    let seen = SEEN[chosen.shown];
    if (store.cloud && this.cloudScale) {
      const [low, high] = this.cloudScale.limits.map(short);
      const layered = store.run.operator?.variant === "paper" ? "basis" : "energy of the site";
      const where = store.layer ? `after layer ${store.layer}` : "before layer 1";
      const by = store.particleColour === "weight" ? "weight" : `${layered} ${where}`;
      const drawn = store.cloud.displacements
        ? "Arrows: from where what arrives came from to the site"
        : `Ellipses: ${store.particleSize} σ`;
      seen += ` ${drawn}, ${by} ${low} (dark) to ${high} (light)`;
      seen += store.geometry.numAxes === 1 ? ", as high as their weight." : ".";
    }
    element("field-seen").textContent = seen;
    const [low, high] = endsOf(chosen.values, store.geometry.known);
    element("field").setAttribute(
      "aria-label", `${chosen.name}, ${chosen.shown}: from ${short(low)} to ${short(high)} ${chosen.units}`,
    );
  }

  outlines() {
    const colours = [themeColour("first"), themeColour("second")];
    return (this.store.windows ?? []).map((window, n) => {
      const [low, high] = endsOf(window, this.store.geometry.known);
      return { window, level: (low + high) / 2, colour: colours[n] };
    });
  }

  // In one dimension the truth and the windows are curves beside the field.
  curves(chosen) {
    if (this.store.geometry.numAxes > 1) return [];
    const curves = this.outlines().map(({ window, colour }) => {
      const [low, high] = endsOf(window, this.store.geometry.known);
      const [least, most] = chosen.scale.limits;
      const values = window.map((value) => least + ((value - low) / (high - low || 1)) * (most - least));
      return { values, colour, dash: [2, 3] };
    });
    if (chosen.truth) curves.push({ values: chosen.truth, colour: themeColour("faint"), dash: [6, 4] });
    return curves;
  }

  hover(place) {
    const { store } = this;
    const line = element("hover");
    if (!place || !this.now) {
      line.textContent = "";
      return;
    }
    const [x, y] = place;
    const site = store.geometry.siteAt(x, y);
    const value = site < 0 || !store.geometry.known[site] ? "nothing here" : `${short(this.now.values[site])} ${this.now.units}`;
    const [px, py] = this.view.picture.toPixel(x, y);
    const particle = store.cloud ? store.cloud.words(px, py, store.geometry) : "";
    line.textContent = `${this.view.words(place)}: ${value}${particle ? `; ${particle}` : ""}`;
  }
}
