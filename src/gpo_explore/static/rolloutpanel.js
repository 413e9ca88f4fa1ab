// Forecast, truth and error of a rollout by step, and the errors of reference forecasts.

import { ablationBody, isEmpty, NO_ABLATION } from "./ablation.js";
import { applyLayout, arrange, maxHeight } from "./arrange.js";
import { drawCoast } from "./coast.js";
import { format, signedScale } from "./colours.js";
import { player } from "./controls.js";
import { drawErrors, referenceLines, stepAt } from "./curve.js";
import { legend } from "./legend.js";
import { Picture, themeColour } from "./picture.js";
import { showError } from "./problem.js";
import { labelOf, scaleFor } from "./shownfield.js";
import { column, element } from "./store.js";
import { LatestRequest } from "./requests.js";

const DEBOUNCE = 250;
const STEPS = 20;
const HEIGHT = 430;
const CURVE = { minHeight: 200, maxHeight: 330, legend: 46 };

export class RolloutPanel {
  constructor(store) {
    this.store = store;
    const { reasons } = store.run;
    if (reasons.rollout) {
      element("rollout-seen").textContent = reasons.rollout;
      for (const id of ["play-rollout", "step"]) element(id).disabled = true;
      document.querySelector(".forecasts").hidden = true;
      return;
    }
    this.requests = { whole: new LatestRequest("rollout"), ablated: new LatestRequest("rollout") };
    this.pictures = ["forecast", "rollout-truth", "rollout-error"].map((id) => new Picture(element(id)));
    element("step").addEventListener("input", () => store.set({ step: Number(element("step").value) }));
    element("curve").addEventListener("click", ({ offsetX }) => this.selectStep(offsetX));
    player(element("play-rollout"), element("step"), 450);
    store.on(["example", "ablation"], () => this.loadSoon());
    store.on(["variable", "box", "theme", "step", "fitsColours", "isSmooth", "coast"], () => this.draw());
    store.on(["geometry"], () => this.arrange());
    window.addEventListener("resize", () => this.arrange());
    new ResizeObserver(() => this.draw()).observe(element("curve"));
  }

  arrange() {
    const { geometry } = this.store;
    if (!geometry) return;
    const width = element("rollout-pictures").clientWidth;
    applyLayout(this.pictures, arrange(3, geometry, { width, height: maxHeight(geometry, HEIGHT) }));
    const height = element("rollout-pictures").clientHeight - 2 * CURVE.legend;
    element("curve").style.height = `${Math.min(CURVE.maxHeight, Math.max(CURVE.minHeight, height))}px`;
    this.draw();
  }

  // Waits until the settings rest, because a rollout is many predictions.
  loadSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), DEBOUNCE);
  }

  // Loads the rollout of the full model, and of the ablated one.
  async load() {
    if (!this.requests) return;
    const { example, ablation } = this.store;
    try {
      const send = (request, parts) => request.send({ example, ablation: ablationBody(parts), steps: STEPS });
      const whole = await send(this.requests.whole, NO_ABLATION);
      const ablated = isEmpty(ablation) ? null : await send(this.requests.ablated, ablation);
      if (!whole || (!ablated && !isEmpty(ablation))) return;
      Object.assign(this, { whole, rollout: ablated ?? whole, isAblated: Boolean(ablated) });
      const steps = whole.arrays.forecast.shape[0];
      element("step").max = steps;
      this.store.set({ rollout: this.rollout, step: Math.min(this.store.step, steps) });
      this.draw();
      showError("rollout", null);
    } catch (error) {
      showError("rollout", error);
    }
  }

  selectStep(px) {
    if (!this.rollout) return;
    const count = this.rollout.metadata.errors.length;
    this.store.set({ step: stepAt(element("curve"), px, count) + 1 });
  }

  draw() {
    if (!this.rollout || !this.store.geometry) return;
    const { geometry, box, variable, run, coast, isSmooth } = this.store;
    const { forecast, truth } = this.rollout.arrays;
    if (forecast.shape[1] !== geometry.numSites) return;
    const step = Math.min(this.store.step, forecast.shape[0]) - 1;
    const output = run.outputs[variable];
    const predicted = column(forecast, variable, step);
    const true_ = column(truth, variable, step);
    const error = predicted.map((value, n) => value - true_[n]);
    const shared = scaleFor(this.store, output, [true_]);
    const fields = [[predicted, shared], [true_, shared], [error, signedScale(error, geometry.active)]];
    const curves = [{ values: true_, colour: themeColour("faint"), dash: [6, 4] }];
    const over = (context, picture) => coast && drawCoast(context, picture, coast);
    fields.forEach(([values, scale], n) =>
      this.pictures[n].show({ geometry, box, values, scale, units: labelOf(output), isSmooth, curves: n ? [] : curves, over }),
    );
    const { labels } = this.rollout.metadata;
    const text = [`${step + 1} of ${labels.length}: ${labels[step]}`, geometry.sliceText].filter(Boolean).join(", ");
    element("step").value = step + 1;
    element("step-text").textContent = text;
    element("step").setAttribute("aria-valuetext", text);
    this.drawCurve(output, step);
  }

  drawCurve(output, step) {
    const { variable } = this.store;
    const errorsOf = (errors) => errors.map(({ rms }) => rms[variable]);
    const { references, no_references: reason } = this.whole.metadata;
    const lines = [
      { text: "model", errors: errorsOf(this.whole.metadata.errors), colour: "curve", width: 2.4 },
      ...referenceLines(references, errorsOf),
    ];
    if (this.isAblated) {
      const ablated = { text: "ablated model", errors: errorsOf(this.rollout.metadata.errors), colour: "off" };
      lines.unshift(ablated);
      lines[1].text = "full model";
    }
    drawErrors(element("curve"), lines, step);
    const units = output.units ? ` (${output.units})` : "";
    element("curve-caption").textContent = `RMS error of ${output.name} by step${units}`;
    legend("curve-legend", lines.map(({ text, colour, style }) => ({ text, colour: themeColour(colour), style })));
    element("curve-legend").title = reason ?? "";
    const values = lines.map(({ text, errors }) => `${text} ${format(errors[step])}`).join(", ");
    element("curve").setAttribute("aria-label", `RMS error at step ${step + 1}: ${values} ${output.units}`.trim());
  }
}
