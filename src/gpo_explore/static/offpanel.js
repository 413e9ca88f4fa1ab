// The ablated parts and their effect, and the attribution of the prediction at the queried point.

import { format, withUnits } from "./colours.js";
import { ablatedParts, isEmpty, NO_ABLATION } from "./ablation.js";
import { interpolatedAt } from "./interpolation.js";
import { column, element, make } from "./store.js";

const MAX_CONTRIBUTIONS = 6;

export class OffPanel {
  constructor(store) {
    this.store = store;
    store.on(["ablation"], () => this.list());
    store.on(["prediction", "frames", "variable"], () => this.effect());
    store.on(["dependence", "value", "point"], () => this.point());
    this.list();
    this.point();
  }

  list() {
    const { store } = this;
    if (store.run.reasons.ablation) {
      element("parts").textContent = store.run.reasons.ablation;
      return;
    }
    const parts = ablatedParts(store.ablation, (mode) => store.modes.name(mode));
    const buttons = parts.map(({ text, without }) => {
      const button = make("button", { type: "button", textContent: `${text} ×` });
      button.setAttribute("aria-label", `Switch ${text} on again`);
      button.addEventListener("click", () => store.set({ ablation: without }));
      return button;
    });
    if (buttons.length) {
      const all = make("button", { type: "button", textContent: "All on", id: "all-on" });
      all.addEventListener("click", () => store.set({ ablation: NO_ABLATION }));
      buttons.push(all);
    }
    element("parts").replaceChildren(...(buttons.length ? buttons : ["No part is ablated."]));
  }

  effect() {
    const { store } = this;
    if (!store.prediction || !store.frames) return;
    const { variable, run } = store;
    const { units } = run.outputs[variable];
    const { errors, changes } = store.prediction.metadata;
    const whole = store.frames.metadata.errors;
    const rms = `RMS error ${withUnits(whole.rms[variable], units)}`;
    const relative = `relative L2 ${format(whole.relative_l2)}`;
    element("effect").textContent = isEmpty(store.ablation)
      ? `${rms}, ${relative}, of the full model.`
      : `The prediction changes by ${withUnits(changes.rms[variable], units)} (RMS). ` +
        `Error ${format(whole.rms[variable])} → ${withUnits(errors.rms[variable], units)}, ` +
        `relative L2 ${format(whole.relative_l2)} → ${format(errors.relative_l2)}.`;
  }

  point() {
    const { store } = this;
    const { dependence, value, point, variable, run } = store;
    const contributions = element("contributions");
    if (!point || !dependence) {
      element("point").textContent = "Click a point of the field to attribute its prediction.";
      contributions.replaceChildren();
      return;
    }
    const { units } = run.outputs[variable];
    const { predicted, truth, attributed, of, site } = dependence.metadata;
    const exact = value ? this.describeValue(value.metadata.values[variable], units) : "";
    const target = of === "change" ? "the change since the last frame" : "the deviation from the mean";
    element("point").textContent =
      `At (${point.map(format).join(", ")}): ${exact}Nearest site, ${site}: predicted ${format(predicted)}, ` +
      `truth ${withUnits(truth, units)}. Contributions to ${target}, ${withUnits(attributed, units)}:`;
    this.listContributions(contributions, dependence, units);
  }

  // Returns the text of the value at the point, compared with the interpolated prediction.
  describeValue(value, units) {
    const { geometry, prediction, point, variable } = this.store;
    const text = `value ${withUnits(value, units)}`;
    if (prediction.arrays.predicted.shape[0] !== geometry.numSites) return `${text}. `;
    const linear = interpolatedAt(geometry, column(prediction.arrays.predicted, variable), point);
    const reason = "the model interpolates its input and evaluates its layers at the point";
    if (linear === null || !Number.isFinite(linear)) return `${text} (between sites, ${reason}). `;
    return `${text}; interpolated from the prediction at the sites: ${withUnits(linear, units)} ` +
      `(difference ${format(Math.abs(value - linear))}: ${reason}). `;
  }

  listContributions(list, { arrays }, units) {
    const { store } = this;
    if (!arrays.modes || !store.modes) {
      list.replaceChildren();
      return;
    }
    const { data, shape } = arrays.modes;
    const largest = Array.from(data.keys())
      .sort((a, b) => Math.abs(data[b]) - Math.abs(data[a]))
      .slice(0, MAX_CONTRIBUTIONS);
    list.replaceChildren(
      ...largest.map((n) => {
        const [layer, mode] = [Math.floor(n / shape[1]), n % shape[1]];
        const textContent = `layer ${layer + 1}, ${store.modes.name(mode)}: ${data[n] > 0 ? "+" : ""}${withUnits(data[n], units)}`;
        const button = make("button", { type: "button", textContent });
        button.addEventListener("click", () => store.set({ layer: layer + 1, mode, partner: null, showsWindows: true }));
        return make("li", {}, button);
      }),
    );
  }
}
