// Two runs side by side: predictions and errors of one example, and the errors of both rollouts.

import { NOTHING, plain } from "./ablation.js";
import { arrange, roomFor, settle } from "./arrange.js";
import { drawCoast } from "./coast.js";
import { short, signedScale, withUnits } from "./colours.js";
import { drawErrors } from "./curve.js";
import { legend } from "./legend.js";
import { Picture, themeColour } from "./picture.js";
import { complain } from "./problem.js";
import { labelOf, scaleFor } from "./shownfield.js";
import { column, element } from "./store.js";
import { Latest } from "./wire.js";

const CANVASES = ["compare-first", "compare-second", "compare-first-error", "compare-second-error"];
const HEIGHT = 430;
const STEPS = 20;
const QUIET = 300;

export class ComparePanel {
  constructor(store) {
    this.store = store;
    const { compared } = store.run;
    element("compare-panel").hidden = !compared;
    if (!compared) return;
    this.latest = { other: new Latest("other"), ours: new Latest("rollout"), theirs: new Latest("other-rollout") };
    this.pictures = CANVASES.map((id) => new Picture(element(id)));
    // It has its place before it is drawn: pictures beside it are sized by what is left.
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
    if (!this.latest) return;
    this.arrange();
    await this.load();
  }

  arrange() {
    const { geometry } = this.store;
    if (!geometry) return;
    const room = { width: element("compare-pictures").clientWidth, height: roomFor(geometry, HEIGHT) };
    settle(this.pictures, arrange(4, geometry, room));
    this.draw();
  }

  loadSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), QUIET);
  }

  async load() {
    const { example, run } = this.store;
    try {
      const other = await this.latest.other.ask({ example });
      if (!other) return;
      Object.assign(this, { other, example, rollouts: null });
      this.draw();
      complain("compare", null);
      if (run.reasons.rollout) return;
      const body = { example, ablation: plain(NOTHING), steps: STEPS };
      const rollouts = await Promise.all([this.latest.ours.ask(body), this.latest.theirs.ask(body)]);
      if (rollouts.some((one) => !one)) return;
      this.rollouts = rollouts;
      this.drawCurve();
    } catch (error) {
      this.other = this.rollouts = null;
      element("compare-seen").textContent = error.message;
      complain("compare", error);
    }
  }

  draw() {
    const { geometry, frames, variable, run, box, coast, isSmooth, example } = this.store;
    if (!this.other || !frames || !geometry || this.example !== example) return;
    const [ours, theirs] = [frames.arrays.whole, this.other.arrays.predicted].map((rows) => column(rows, variable));
    const truth = column(frames.arrays.truth, variable);
    if ([ours, theirs, truth].some(({ length }) => length !== geometry.numSites)) return;
    const errors = [ours, theirs].map((guess) => guess.map((value, n) => value - truth[n]));
    const output = run.outputs[variable];
    const scale = scaleFor(this.store, output, [truth, ours, theirs]);
    // One scale for both errors: else the smaller one would look as large.
    const scales = errors.map((error) => signedScale(error, geometry.known));
    const widest = scales.reduce((a, b) => (b.limits[1] > a.limits[1] ? b : a));
    const over = (context, picture) => coast && drawCoast(context, picture, coast);
    [[ours, scale], [theirs, scale], [errors[0], widest], [errors[1], widest]].forEach(([values, how], n) =>
      this.pictures[n].show({ geometry, box, values, scale: how, units: labelOf(output), isSmooth, curves: [], over }),
    );
    this.describe(output);
    this.drawCurve();
  }

  describe({ units }) {
    const { frames, variable, run } = this.store;
    const [ours, theirs] = [frames.metadata.errors, this.other.metadata.errors].map(({ rms }) => rms[variable]);
    const less = 100 * Math.abs(1 - Math.min(ours, theirs) / Math.max(ours, theirs));
    const better = ours < theirs ? run.name : run.compared.name;
    const { sliceWords } = this.store.geometry;
    const slice = sliceWords && ` Pictures are cut at ${sliceWords}.`;
    const verdict = less < 1 ? "both err as much" : `${better} errs by ${Math.round(less)} % less`;
    element("compare-seen").textContent =
      `RMS error here: ${run.name} (${run.model}) ${withUnits(ours, units)}, ${run.compared.name} (${run.compared.model}) ` +
      `${withUnits(theirs, units)}: ${verdict} in this example.${slice}`;
  }

  drawCurve() {
    const canvas = element("compare-curve");
    if (!this.rollouts || !canvas.clientWidth) return;
    const { variable, run } = this.store;
    const errorsOf = (errors) => errors.map(({ rms }) => rms[variable]);
    const [ours, theirs] = this.rollouts.map(({ metadata }) => metadata);
    const lines = [
      { text: run.name, errors: errorsOf(ours.errors), colour: "curve", width: 2.4 },
      { text: run.compared.name, errors: errorsOf(theirs.errors), colour: "second-run", width: 2.4 },
      ...Object.entries(ours.references).map(([name, errors]) => ({
        text: name, errors: errorsOf(errors), colour: name, isReference: true, width: 1.6, dash: [6, 4], style: "dashed",
      })),
    ];
    drawErrors(canvas, lines, Math.min(this.store.step, ours.errors.length) - 1);
    const { name, units } = run.outputs[variable];
    element("compare-curve-caption").textContent = `RMS error of ${name} by step${units ? ` (${units})` : ""}`;
    legend("compare-legend", lines.map(({ text, colour, style }) => ({ text, colour: themeColour(colour), style })));
    const last = ours.errors.length - 1;
    const words = lines.map(({ text, errors }) => `${text} ${short(errors[last])}`).join(", ");
    canvas.setAttribute("aria-label", `RMS error at step ${last + 1}: ${words}`);
  }
}
