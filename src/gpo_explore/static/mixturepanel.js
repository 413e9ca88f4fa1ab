// The shown field as K Gaussians: ellipses over it, and their error compared with a fixed lattice.

import { NO_ABLATION, ablationBody } from "./ablation.js";
import { format, withUnits } from "./colours.js";
import { checkbox, isSeries } from "./controls.js";
import { addCurve, addEllipse, planeEllipse, strokeOutlined } from "./ellipses.js";
import { LongRequest } from "./longrequest.js";
import { themeColour } from "./picture.js";
import { showError } from "./problem.js";
import { element } from "./store.js";

const COUNTS = [1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200];
const DEBOUNCE = 300;
const FIELDS = { compare: "predicted", predicted: "predicted", truth: "truth", given: "given" };

export class MixturePanel {
  constructor(store, field) {
    this.store = store;
    this.field = field;
    this.request = new LongRequest("mixture");
    this.answer = null;
    const slider = element("mixture-size");
    slider.max = COUNTS.length - 1;
    checkbox(store, "show-mixture", "showsMixture");
    slider.addEventListener("input", () => store.set({ mixtureSize: COUNTS[slider.value] }));
    element("mixture-stop").addEventListener("click", () => this.stop());
    field.overlays.push((context, picture) => this.draw(context, picture));
    store.on(["showsMixture", "mixtureSize", "geometry"], () => this.update());
    store.on(["showsMixture", "mixtureSize", "shown", "given", "variable", "example", "ablation", "geometry"], () => this.loadSoon());
    // Another slice intersects other Gaussians.
    store.on(["box"], () => this.answer && store.geometry.numAxes === 3 && this.describe());
    this.update();
  }

  // The largest number of Gaussians: not more than sites.
  get maxCount() {
    const sites = this.store.geometry ? this.numActive : Infinity;
    return Math.max(1, ...COUNTS.filter((count) => count <= sites));
  }

  get count() {
    return Math.min(this.store.mixtureSize, this.maxCount);
  }

  update() {
    const { showsMixture } = this.store;
    const slider = element("mixture-size");
    element("mixture-settings").classList.toggle("idle", !showsMixture);
    slider.max = COUNTS.indexOf(this.maxCount);
    slider.value = COUNTS.findLastIndex((count) => count <= this.count);
    slider.setAttribute("aria-valuetext", `${this.count} Gaussians`);
    element("mixture-count").textContent = `K = ${this.count}`;
    element("mixture-line").hidden = !showsMixture;
  }

  stop() {
    clearTimeout(this.timer);
    this.request.stop();
    this.setStatus("Stopped. Move the slider to start another fit.");
  }

  setStatus(text, { isBusy = false } = {}) {
    element("mixture-text").textContent = text;
    element("mixture-stop").hidden = !isBusy;
  }

  // Waits until the slider rests; a fit in progress is aborted.
  loadSoon() {
    clearTimeout(this.timer);
    this.request.stop();
    this.clear();
    if (!this.store.showsMixture) return;
    if (!FIELDS[this.store.shown]) {
      this.setStatus("Gaussians can be fitted to the input, the prediction or the truth: choose one of these.");
      return;
    }
    this.setStatus(`Fitting ${this.count} Gaussians…`, { isBusy: true });
    this.timer = setTimeout(() => this.load(), DEBOUNCE);
  }

  clear() {
    if (!this.answer) return;
    this.answer = null;
    this.field.draw();
  }

  get body() {
    const { store } = this;
    const field = FIELDS[store.shown];
    const body = { example: store.example, field, variable: store.variable, count: this.count };
    body.ablation = ablationBody(field === "predicted" ? store.ablation : NO_ABLATION);
    if (field === "given" && isSeries(store.run)) body.frame = store.given;
    else if (field === "given") body.variable = store.given;
    return body;
  }

  async load() {
    try {
      const answer = await this.request.send(this.body);
      if (!answer) return;
      this.answer = answer;
      this.describe();
      this.field.draw();
      showError("mixture", null);
    } catch (error) {
      this.setStatus("");
      showError("mixture", error);
    }
  }

  describe() {
    const { run, variable, shown, given, geometry } = this.store;
    const isInput = shown === "given" && !isSeries(run);
    const { units } = isInput ? run.inputs[given] : run.outputs[variable];
    const { fitted, lattice, is_cut: isCut, most_seconds: seconds, num_sites: sites } = this.answer.metadata;
    const error = ({ relative_l2: relative, rms }) => `${format(relative)} (RMS ${withUnits(rms, units)})`;
    const sliced = geometry.numAxes === 3 ? ` of the ${this.ellipses(geometry).length} that intersect the slice` : "";
    const drawn = geometry.numAxes === 1 ? "drawn as curves" : `1 σ ellipses${sliced}`;
    const stopped = isCut ? ` Stopped after ${seconds} s, before convergence.` : "";
    const sampled = sites < this.numActive ? ` Fitted to ${sites.toLocaleString("en")} of the sites.` : "";
    this.setStatus(
      `${fitted.count} Gaussians: relative error ${error(fitted)}; control, ${lattice.count} on a fixed lattice: ` +
        `${error(lattice)}. Solid: positive amplitude, dashed: negative; ${drawn}.${stopped}${sampled}`,
    );
  }

  get numActive() {
    return this.store.geometry.active.reduce((sum, isActive) => sum + (isActive ? 1 : 0), 0);
  }

  // Returns the one-sigma ellipses in the drawn plane, with the amplitude of each Gaussian.
  ellipses(geometry) {
    const { centers, covariances, amplitudes } = this.answer.arrays;
    const dim = geometry.numAxes;
    const part = ({ data }, n, size) => data.subarray(n * size, (n + 1) * size);
    return Array.from(amplitudes.data, (amplitude, n) => {
      const ellipse = planeEllipse(geometry, part(centers, n, dim), part(covariances, n, dim * dim));
      return ellipse && { ...ellipse, amplitude };
    }).filter(Boolean);
  }

  draw(context, picture) {
    const { geometry } = picture.content;
    if (!this.answer || !this.store.showsMixture || this.answer.arrays.centers.shape[1] !== geometry.numAxes) return;
    const paths = { positive: new Path2D(), negative: new Path2D() };
    const { offset } = this.answer.metadata;
    for (const ellipse of this.ellipses(geometry)) {
      const { x, xx, amplitude } = ellipse;
      const path = amplitude > 0 ? paths.positive : paths.negative;
      if (geometry.numAxes === 1) addCurve(path, picture, { center: x, variance: xx, amplitude, offset });
      else addEllipse(path, picture, ellipse);
    }
    // In one dimension the background is the panel, not the colours of a field.
    const colour = geometry.numAxes === 1 ? themeColour("text") : undefined;
    strokeOutlined(context, paths.positive, { colour });
    strokeOutlined(context, paths.negative, { colour, dash: [5, 3] });
  }
}
