// What is off and what that changes, and on what the chosen point depends.

import { short, withUnits } from "./colours.js";
import { isNothing, listed, NOTHING } from "./ablation.js";
import { interpolatedAt } from "./interpolation.js";
import { column, element } from "./store.js";

const MOST = 6;

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
    const names = listed(store.ablation, (mode) => store.modes.name(mode));
    const buttons = names.map(({ text, without }) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: `${text} ×` });
      button.setAttribute("aria-label", `Switch ${text} on again`);
      button.addEventListener("click", () => store.set({ ablation: without }));
      return button;
    });
    if (buttons.length) {
      const all = document.createElement("button");
      Object.assign(all, { type: "button", textContent: "All on", id: "all-on" });
      all.addEventListener("click", () => store.set({ ablation: NOTHING }));
      buttons.push(all);
    }
    element("parts").replaceChildren(...(buttons.length ? buttons : ["Nothing is off."]));
  }

  effect() {
    const { store } = this;
    if (!store.prediction || !store.frames) return;
    const { variable, run } = store;
    const { units } = run.outputs[variable];
    const { errors, changes } = store.prediction.metadata;
    const whole = store.frames.metadata.errors;
    const rms = `RMS error ${withUnits(whole.rms[variable], units)}`;
    const relative = `relative L2 ${short(whole.relative_l2)}`;
    element("effect").textContent = isNothing(store.ablation)
      ? `${rms}, ${relative}, with everything on.`
      : `The prediction changes by ${withUnits(changes.rms[variable], units)} (RMS). ` +
        `Error ${short(whole.rms[variable])} → ${withUnits(errors.rms[variable], units)}, ` +
        `relative L2 ${short(whole.relative_l2)} → ${short(errors.relative_l2)}.`;
  }

  point() {
    const { store } = this;
    const { dependence, value, point, variable, run } = store;
    const contributions = element("contributions");
    if (!point || !dependence) {
      element("point").textContent = "Click a point of the field to see on what it depends.";
      contributions.replaceChildren();
      return;
    }
    const { units } = run.outputs[variable];
    const { predicted, truth, attributed, of, site } = dependence.metadata;
    const exact = value ? this.between(value.metadata.values[variable], units) : "";
    const what = of === "change" ? "the change since the last frame" : "the value, counted from the mean";
    element("point").textContent =
      `At (${point.map(short).join(", ")}): ${exact}Next site, ${site}: predicted ${short(predicted)}, ` +
      `truth ${withUnits(truth, units)}. Contributions to ${what}, ${withUnits(attributed, units)}:`;
    this.listContributions(contributions, dependence, units);
  }

  // Returns the value at a point in words, beside what interpolating the prediction would give.
  between(asked, units) {
    const { geometry, prediction, point, variable } = this.store;
    const text = `value ${withUnits(asked, units)}`;
    if (prediction.arrays.predicted.shape[0] !== geometry.numSites) return `${text}. `;
    const linear = interpolatedAt(geometry, column(prediction.arrays.predicted, variable), point);
    const how = "the model blends what the next sites were given and runs its layers at the point itself";
    if (linear === null || !Number.isFinite(linear)) return `${text} (between sites ${how}). `;
    return `${text}; interpolating the prediction at the sites: ${withUnits(linear, units)}, ` +
      `${short(Math.abs(asked - linear))} away, since ${how}. `;
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
      .slice(0, MOST);
    list.replaceChildren(
      ...largest.map((n) => {
        const [layer, mode] = [Math.floor(n / shape[1]), n % shape[1]];
        const item = document.createElement("li");
        const button = document.createElement("button");
        const sign = data[n] > 0 ? "+" : "";
        button.type = "button";
        button.textContent = `layer ${layer + 1}, ${store.modes.name(mode)}: ${sign}${withUnits(data[n], units)}`;
        button.addEventListener("click", () => store.set({ layer: layer + 1, mode, partner: null, showsWindows: true }));
        item.append(button);
        return item;
      }),
    );
  }
}
