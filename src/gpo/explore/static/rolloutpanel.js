// Forecast, truth and error side by side, step by step.

import { scaleOf, short, signedScale, ticks } from "./colours.js";
import { player } from "./controls.js";
import { fitted, Picture, suit, themeColour } from "./picture.js";
import { complain } from "./problem.js";
import { plain } from "./ablation.js";
import { column, element } from "./store.js";
import { Latest } from "./wire.js";

const QUIET = 250;

export class RolloutPanel {
  constructor(store) {
    this.store = store;
    this.latest = new Latest("rollout");
    const { reasons } = store.run;
    if (reasons.rollout) {
      element("rollout-seen").textContent = reasons.rollout;
      for (const id of ["roll-out", "play-rollout", "step"]) element(id).disabled = true;
      return;
    }
    const names = ["forecast", "rollout-truth", "rollout-error"];
    this.pictures = names.map((id) => new Picture(element(id), { isBare: true }));
    element("roll-out").addEventListener("click", () => this.load());
    element("step").addEventListener("input", () => this.draw());
    player(element("play-rollout"), element("step"), 450);
    store.on(["example", "ablation"], () => this.rollout && this.loadSoon());
    store.on(["variable", "box", "theme"], () => this.draw());
    store.on(["geometry"], () => this.pictures.forEach(({ canvas }) => suit(canvas, store.geometry, 230, 8, 82)));
    new ResizeObserver(() => this.draw()).observe(element("curve"));
  }

  // Waits until nothing changes any more: a rollout is many predictions.
  loadSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), QUIET);
  }

  async load() {
    const { example, ablation } = this.store;
    try {
      const rollout = await this.latest.ask({ example, ablation: plain(ablation), steps: 20 });
      if (!rollout) return;
      this.rollout = rollout;
      const steps = rollout.arrays.forecast.shape[0];
      element("step").max = steps;
      element("step").value = Math.min(Number(element("step").value), steps);
      this.draw();
      complain("rollout", null);
    } catch (error) {
      complain("rollout", error);
    }
  }

  draw() {
    if (!this.rollout) return;
    const { geometry, box, variable, run } = this.store;
    const { forecast, truth } = this.rollout.arrays;
    if (forecast.shape[1] !== geometry.numSites) return;
    const step = Number(element("step").value) - 1;
    const output = run.outputs[variable];
    const units = output.units || output.name;
    const guessed = column(forecast, variable, step);
    const true_ = column(truth, variable, step);
    const error = guessed.map((value, n) => value - true_[n]);
    const scale = scaleOf(...output.range);
    const all = [[guessed, scale], [true_, scale], [error, signedScale(error, geometry.known)]];
    const curves = [{ values: true_, colour: themeColour("faint"), dash: [6, 4] }];
    all.forEach(([values, how], n) =>
      this.pictures[n].show({ geometry, box, values, scale: how, units, curves: n ? [] : curves }),
    );
    const { labels, errors } = this.rollout.metadata;
    const text = `${step + 1} of ${labels.length}, t = ${labels[step]}`;
    element("step-text").textContent = text;
    element("step").setAttribute("aria-valuetext", text);
    this.drawCurve(errors.map(({ relative_l2: error_ }) => error_), step);
  }

  drawCurve(errors, step) {
    const { context, width, height } = fitted(element("curve"));
    const known = errors.filter((error) => error !== null);
    const most = Math.max(...known, 1e-9) * 1.05;
    const [left, right, top, bottom] = [48, 10, 8, 34];
    const x = (n) => left + ((width - left - right) * (n + 0.5)) / errors.length;
    const y = (error) => top + (height - top - bottom) * (1 - error / most);
    context.fillStyle = themeColour("text");
    context.strokeStyle = themeColour("edge");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const at of ticks(0, most, 5)) {
      context.beginPath();
      context.moveTo(left, y(at));
      context.lineTo(width - right, y(at));
      context.stroke();
      context.fillText(short(at), left - 5, y(at));
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const every = Math.ceil(errors.length / 10);
    errors.forEach((_, n) => n % every === 0 && context.fillText(n + 1, x(n), height - bottom + 5));
    context.fillText("step", (left + width - right) / 2, height - 15);
    context.strokeStyle = themeColour("curve");
    context.fillStyle = themeColour("curve");
    context.lineWidth = 2;
    context.beginPath();
    errors.forEach((error, n) => error !== null && context[n ? "lineTo" : "moveTo"](x(n), y(error)));
    context.stroke();
    context.lineWidth = 1;
    if (errors[step] !== null) {
      context.beginPath();
      context.arc(x(step), y(errors[step]), 5, 0, 2 * Math.PI);
      context.fill();
    }
    element("curve").setAttribute("aria-label", `Relative L2 error at step ${step + 1}: ${short(errors[step])}`);
  }
}
