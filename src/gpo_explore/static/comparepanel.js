// Comparison of two runs: predictions and errors of one example, and the errors of both rollouts.

import { NO_ABLATION, ablationBody } from "./ablation.js";
import { applyLayout, arrange, maxHeight } from "./arrange.js";
import { drawCoast } from "./coast.js";
import { format, signedScale, withUnits } from "./colours.js";
import { drawErrors, referenceLines } from "./curve.js";
import { legend } from "./legend.js";
import { Picture, themeColour } from "./picture.js";
import { showError } from "./problem.js";
import { labelOf, scaleFor } from "./shownfield.js";
import { column, element } from "./store.js";
import { LatestRequest } from "./requests.js";

const CANVASES = ["compare-first", "compare-second", "compare-first-error", "compare-second-error"];
const HEIGHT = 430;
const STEPS = 20;
const DEBOUNCE = 300;

export class ComparePanel {
  constructor(store) {
    this.store = store;
    const { compared } = store.run;
    element("compare-panel").hidden = !compared;
    if (!compared) return;
    this.prediction = new LatestRequest("other");
    this.rolloutRequests = ["rollout", "other-rollout"].map((panel) => new LatestRequest(panel));
    this.pictures = CANVASES.map((id) => new Picture(element(id)));
    // Hidden or not before the layout, since the pictures take the width that it leaves.
    element("compare-curve").parentElement.hidden = Boolean(store.run.reasons.rollout);
    const names = [store.run.name, compared.name];
    ["first", "second"].forEach((which, n) => {
      element(`compare-${which}-caption`).textContent = names[n];
      element(`compare-${which}-error-caption`).textContent = `${names[n]} − truth`;
    });
    store.on(["example"], () => this.loadSoon());
    store.on(["variable", "box", "theme", "fitsColours", "isSmooth", "coast", "frames"], () => this.draw());
    store.on(["step"], () => this.drawCurve());
    store.on(["geometry"], () => this.arrange());
    window.addEventListener("resize", () => this.arrange());
    new ResizeObserver(() => this.drawCurve()).observe(element("compare-curve"));
  }

  async begin() {
    if (!this.prediction) return;
    this.arrange();
    await this.load();
  }

  arrange() {
    const { geometry } = this.store;
    if (!geometry) return;
    const room = { width: element("compare-pictures").clientWidth, height: maxHeight(geometry, HEIGHT) };
    applyLayout(this.pictures, arrange(4, geometry, room));
    this.draw();
  }

  loadSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), DEBOUNCE);
  }

  async load() {
    const { example, run } = this.store;
    try {
      const other = await this.prediction.send({ example });
      if (!other) return;
      Object.assign(this, { other, example, rollouts: null });
      this.draw();
      showError("compare", null);
      if (run.reasons.rollout) return;
      const body = { example, ablation: ablationBody(NO_ABLATION), steps: STEPS };
      const rollouts = await Promise.all(this.rolloutRequests.map((request) => request.send(body)));
      if (rollouts.some((rollout) => !rollout)) return;
      this.rollouts = rollouts;
      this.drawCurve();
    } catch (error) {
      this.other = this.rollouts = null;
      element("compare-seen").textContent = error.message;
      showError("compare", error);
    }
  }

  draw() {
    const { geometry, frames, variable, run, box, coast, isSmooth, example } = this.store;
    if (!this.other || !frames || !geometry || this.example !== example) return;
    const [first, second] = [frames.arrays.whole, this.other.arrays.predicted].map((values) => column(values, variable));
    const truth = column(frames.arrays.truth, variable);
    if ([first, second, truth].some(({ length }) => length !== geometry.numSites)) return;
    const errors = [first, second].map((predicted) => predicted.map((value, n) => value - truth[n]));
    const output = run.outputs[variable];
    const shared = scaleFor(this.store, output, [truth, first, second]);
    // Both errors share the wider scale, so that their colours are comparable.
    const scales = errors.map((error) => signedScale(error, geometry.active));
    const widest = scales.reduce((a, b) => (b.limits[1] > a.limits[1] ? b : a));
    const over = (context, picture) => coast && drawCoast(context, picture, coast);
    [[first, shared], [second, shared], [errors[0], widest], [errors[1], widest]].forEach(([values, scale], n) =>
      this.pictures[n].show({ geometry, box, values, scale, units: labelOf(output), isSmooth, curves: [], over }),
    );
    this.describe(output);
    this.drawCurve();
  }

  describe({ units }) {
    const { frames, variable, run } = this.store;
    const [first, second] = [frames.metadata.errors, this.other.metadata.errors].map(({ rms }) => rms[variable]);
    const percent = 100 * Math.abs(1 - Math.min(first, second) / Math.max(first, second));
    const better = first < second ? run.name : run.compared.name;
    const { sliceText } = this.store.geometry;
    const slice = sliceText && ` The pictures show the slice at ${sliceText}.`;
    const verdict = percent < 1 ? "The errors differ by less than 1 %" : `The error of ${better} is ${Math.round(percent)} % smaller`;
    element("compare-seen").textContent =
      `RMS error: ${run.name} (${run.model}) ${withUnits(first, units)}, ${run.compared.name} (${run.compared.model}) ` +
      `${withUnits(second, units)}. ${verdict} in this example.${slice}`;
  }

  drawCurve() {
    const canvas = element("compare-curve");
    if (!this.rollouts || !canvas.clientWidth) return;
    const { variable, run } = this.store;
    const errorsOf = (errors) => errors.map(({ rms }) => rms[variable]);
    const [first, second] = this.rollouts.map(({ metadata }) => metadata);
    const lines = [
      { text: run.name, errors: errorsOf(first.errors), colour: "curve", width: 2.4 },
      { text: run.compared.name, errors: errorsOf(second.errors), colour: "second-run", width: 2.4 },
      ...referenceLines(first.references, errorsOf),
    ];
    drawErrors(canvas, lines, Math.min(this.store.step, first.errors.length) - 1);
    const { name, units } = run.outputs[variable];
    element("compare-curve-caption").textContent = `RMS error of ${name} by step${units ? ` (${units})` : ""}`;
    legend("compare-legend", lines.map(({ text, colour, style }) => ({ text, colour: themeColour(colour), style })));
    const last = first.errors.length - 1;
    const values = lines.map(({ text, errors }) => `${text} ${format(errors[last])}`).join(", ");
    canvas.setAttribute("aria-label", `RMS error at step ${last + 1}: ${values}`);
  }
}
