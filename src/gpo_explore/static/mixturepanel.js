// The shown field as K Gaussians: ellipses over it, and their error beside that of a fixed lattice.

import { NOTHING, plain } from "./ablation.js";
import { short, withUnits } from "./colours.js";
import { isSeries } from "./controls.js";
import { cut, strokeSeen, trace, traceCurve } from "./ellipses.js";
import { LongAsk } from "./longask.js";
import { themeColour } from "./picture.js";
import { complain } from "./problem.js";
import { element } from "./store.js";

const COUNTS = [1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200];
const QUIET = 300;
const FITTED = { compare: "predicted", predicted: "predicted", truth: "truth", given: "given" };

export class MixturePanel {
  constructor(store, field) {
    this.store = store;
    this.field = field;
    this.long = new LongAsk("mixture");
    this.found = null;
    const [box, slider] = [element("show-mixture"), element("mixture-size")];
    slider.max = COUNTS.length - 1;
    box.addEventListener("change", () => store.set({ showsMixture: box.checked }));
    slider.addEventListener("input", () => store.set({ mixtureSize: COUNTS[slider.value] }));
    element("mixture-stop").addEventListener("click", () => this.stop());
    field.overlays.push((context, picture) => this.draw(context, picture));
    store.on(["showsMixture", "mixtureSize", "geometry"], () => this.follow());
    store.on(["showsMixture", "mixtureSize", "shown", "given", "variable", "example", "ablation", "geometry"], () => this.loadSoon());
    // Another slice cuts others.
    store.on(["box"], () => this.found && store.geometry.numAxes === 3 && this.describe());
    this.follow();
  }

  // The largest number that the sites allow; a field cannot have more Gaussians than sites.
  get most() {
    const sites = this.store.geometry ? this.known : Infinity;
    return Math.max(1, ...COUNTS.filter((count) => count <= sites));
  }

  get count() {
    return Math.min(this.store.mixtureSize, this.most);
  }

  follow() {
    const { showsMixture } = this.store;
    const slider = element("mixture-size");
    element("show-mixture").checked = showsMixture;
    element("mixture-settings").classList.toggle("idle", !showsMixture);
    slider.max = COUNTS.indexOf(this.most);
    slider.value = COUNTS.findLastIndex((count) => count <= this.count);
    slider.setAttribute("aria-valuetext", `${this.count} Gaussians`);
    element("mixture-count").textContent = `K = ${this.count}`;
    element("mixture-line").hidden = !showsMixture;
  }

  stop() {
    clearTimeout(this.timer);
    this.long.stop();
    this.say("Stopped. Move the slider to fit again.");
  }

  say(text, { isBusy = false } = {}) {
    element("mixture-text").textContent = text;
    element("mixture-stop").hidden = !isBusy;
  }

  // A slider that is dragged asks once, when it rests; what was under way is given up.
  loadSoon() {
    clearTimeout(this.timer);
    this.long.stop();
    this.forget();
    if (!this.store.showsMixture) return;
    if (!FITTED[this.store.shown]) {
      this.say("Gaussians are fitted to the given, the predicted or the true field: choose one of these.");
      return;
    }
    this.say(`Fitting ${this.count} Gaussians…`, { isBusy: true });
    this.timer = setTimeout(() => this.load(), QUIET);
  }

  forget() {
    if (!this.found) return;
    this.found = null;
    this.field.draw();
  }

  get body() {
    const { store } = this;
    const field = FITTED[store.shown];
    const body = { example: store.example, field, variable: store.variable, count: this.count };
    body.ablation = plain(field === "predicted" ? store.ablation : NOTHING);
    if (field === "given" && isSeries(store.run)) body.frame = store.given;
    else if (field === "given") body.variable = store.given;
    return body;
  }

  async load() {
    try {
      const found = await this.long.ask(this.body);
      if (!found) return;
      this.found = found;
      this.describe();
      this.field.draw();
      complain("mixture", null);
    } catch (error) {
      this.say("");
      complain("mixture", error);
    }
  }

  describe() {
    const { run, variable, shown, given, geometry } = this.store;
    const isInput = shown === "given" && !isSeries(run);
    const { units } = isInput ? run.inputs[given] : run.outputs[variable];
    const { fitted, lattice, is_cut: isCut, most_seconds: seconds, num_sites: sites } = this.found.metadata;
    const error = ({ relative_l2: relative, rms }) => `${short(relative)} (RMS ${withUnits(rms, units)})`;
    const sliced = geometry.numAxes === 3 ? `, of ${this.ellipses(geometry).length} that the slice cuts` : "";
    const drawn = geometry.numAxes === 1 ? "each is a curve" : `ellipses of 1 σ${sliced}`;
    const early = isCut ? ` Ended after ${seconds} s: more steps would be closer.` : "";
    const some = sites < this.known ? ` At ${sites.toLocaleString("en")} of the sites.` : "";
    this.say(
      `${fitted.count} Gaussians: relative error ${error(fitted)}; control, ${lattice.count} on a fixed lattice: ` +
        `${error(lattice)}. Solid where they raise the field, dashed where they lower it; ${drawn}.${early}${some}`,
    );
  }

  get known() {
    return this.store.geometry.known.reduce((sum, isKnown) => sum + (isKnown ? 1 : 0), 0);
  }

  // Returns the ellipses of one sigma in the drawn plane, with the height of each Gaussian.
  ellipses(geometry) {
    const { centers, covariances, amplitudes } = this.found.arrays;
    const dim = geometry.numAxes;
    const part = ({ data }, n, size) => data.subarray(n * size, (n + 1) * size);
    return Array.from(amplitudes.data, (amplitude, n) => {
      const ellipse = cut(geometry, part(centers, n, dim), part(covariances, n, dim * dim));
      return ellipse && { ...ellipse, amplitude };
    }).filter(Boolean);
  }

  draw(context, picture) {
    const { geometry } = picture.content;
    if (!this.found || !this.store.showsMixture || this.found.arrays.centers.shape[1] !== geometry.numAxes) return;
    const paths = { above: new Path2D(), below: new Path2D() };
    const { offset } = this.found.metadata;
    for (const ellipse of this.ellipses(geometry)) {
      const { x, xx, amplitude } = ellipse;
      const path = amplitude > 0 ? paths.above : paths.below;
      if (geometry.numAxes === 1) traceCurve(path, picture, { center: x, variance: xx, amplitude, offset });
      else trace(path, picture, ellipse);
    }
    // On a line there is no field below, but the panel.
    const colour = geometry.numAxes === 1 ? themeColour("text") : undefined;
    strokeSeen(context, paths.above, { colour });
    strokeSeen(context, paths.below, { colour, dash: [5, 3] });
  }
}
