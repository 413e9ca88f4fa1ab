// The rank of the example's error among those of all test examples.

import { format, ticks, withUnits } from "./colours.js";
import { LongRequest } from "./longrequest.js";
import { prepareCanvas, themeColour } from "./picture.js";
import { showError } from "./problem.js";
import { element } from "./store.js";

const MARGIN = { left: 34, right: 10, top: 8, bottom: 32 };
const NUM_BINS = 24;
const RANKS = ["easiest", "middle", "hardest"];
const MAX_SECONDS = 20;
const DESCRIPTIONS = [[10, "among the easiest"], [35, "easier than most"], [65, "typical"], [90, "harder than most"], [101, "among the hardest"]];

export class TypicalPanel {
  constructor(store) {
    this.store = store;
    this.request = new LongRequest("typical", ({ done, total }) => this.setStatus(`${done} of ${total} test examples…`, true));
    element("typical-compute").addEventListener("click", () => (this.request.isBusy ? this.stop() : this.load()));
    for (const id of RANKS) {
      element(`typical-${id}`).addEventListener("click", () => this.select(id));
    }
    store.on(["frames", "example", "variable", "theme"], () => this.draw());
    new ResizeObserver(() => this.draw()).observe(element("typical"));
  }

  // Starts automatically if it takes a few seconds; else the user starts it.
  begin() {
    const { prediction, run } = this.store;
    const seconds = (prediction?.metadata.seconds ?? 0) * Math.min(256, run.examples.length);
    if (seconds <= MAX_SECONDS) return this.load();
    const text = seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
    this.setStatus(`Predicting all test examples takes about ${text}.`);
    return null;
  }

  stop() {
    this.request.stop();
    this.setStatus("Stopped.");
  }

  setStatus(text, isBusy = false) {
    element("typical-seen").textContent = text;
    const button = element("typical-compute");
    button.hidden = Boolean(this.answer);
    for (const id of RANKS) element(`typical-${id}`).hidden = !this.answer;
    button.textContent = isBusy ? "Stop" : "Compute";
  }

  async load() {
    this.setStatus("Computing the errors of the test examples…", true);
    try {
      const answer = await this.request.send({});
      if (!answer) return;
      this.answer = answer;
      this.setStatus("");
      this.draw();
      showError("typical", null);
    } catch (error) {
      this.setStatus("");
      showError("typical", error);
    }
  }

  // Returns the errors of one forecast in all examples, for the selected variable.
  errors(name) {
    const { data, shape } = this.answer.arrays[name];
    return Array.from({ length: shape[0] }, (_, n) => data[n * shape[1] + this.store.variable]);
  }

  // Selects the example with the smallest, the median or the largest error.
  select(rank) {
    if (!this.answer) return;
    const numbers = this.answer.arrays.numbers.data;
    const errors = this.errors("model");
    const order = Array.from(errors.keys()).filter((n) => Number.isFinite(errors[n])).sort((a, b) => errors[a] - errors[b]);
    const index = { easiest: 0, middle: (order.length - 1) >> 1, hardest: order.length - 1 }[rank];
    if (order.length) this.store.set({ example: numbers[order[index]] });
  }

  draw() {
    const { frames, variable, run } = this.store;
    if (!this.answer || !frames) return;
    const errors = this.errors("model").filter(Number.isFinite);
    const own = frames.metadata.errors.rms[variable];
    if (own === null || !errors.length) return;
    const { units } = run.outputs[variable];
    const { rank, text } = rankOf(errors, own);
    const [, description] = DESCRIPTIONS.find(([end]) => rank < end);
    const total = this.answer.metadata.num_examples;
    const sampled = errors.length < total ? ` (of ${errors.length} out of ${total}, evenly spaced)` : "";
    element("typical-seen").textContent = errors.length < 2
      ? `RMS error ${withUnits(own, units)}: the only test example.`
      : `RMS error ${withUnits(own, units)}: larger than in ${text}${sampled}, ${description}.`;
    element("typical-beside").textContent = [this.describePersistence(units), this.describeOther(units)].filter(Boolean).join(" ");
    drawBars(element("typical"), errors, own, units);
    element("typical").setAttribute("aria-label", `Errors of ${errors.length} test examples from ${format(Math.min(...errors))} to ${withUnits(Math.max(...errors), units)}; this one ${format(own)}`);
  }

  // The error of persistence shows whether the field changes more than usual.
  describePersistence(units) {
    if (!this.answer.arrays.persistence) return "";
    const all = this.errors("persistence");
    const own = all[this.index];
    if (!Number.isFinite(own)) return "";
    if (all.length < 2) return `Error of persistence: ${withUnits(own, units)}.`;
    const { rank, text } = rankOf(all.filter(Number.isFinite), own);
    const change = rank < 35 ? "changes less than usual" : rank > 65 ? "changes more than usual" : "changes as much as usual";
    return `Error of persistence: ${withUnits(own, units)}, larger than in ${text}: the field ${change}.`;
  }

  describeOther(units) {
    const { compared } = this.store.run;
    if (!this.answer.arrays.other) return "";
    const [first, second] = [this.errors("model"), this.errors("other")];
    const both = first.map((_, n) => n).filter((n) => Number.isFinite(first[n]) && Number.isFinite(second[n]));
    const wins = both.filter((n) => second[n] < first[n]).length;
    const mean = (values) => both.reduce((sum, n) => sum + values[n], 0) / Math.max(1, both.length);
    return `The error of ${compared.name} is smaller in ${wins} of the ${both.length} common test examples ` +
      `(mean ${format(mean(second))}, compared with ${withUnits(mean(first), units)}).`;
  }

  // The index of the example among the scored ones; -1 if it was not scored.
  get index() {
    return this.answer.arrays.numbers.data.indexOf(this.store.example);
  }
}

// Returns {rank, text}: the percentage of the other values that are smaller, and a text of it.
export function rankOf(values, value) {
  const others = Math.max(1, values.length - 1);
  // The value may differ from its copy among the values by rounding.
  const below = Math.min(others, values.filter((other) => other < value - 1e-5 * Math.abs(value)).length);
  const rank = (100 * below) / others;
  if (below === 0) return { rank, text: "no other test example" };
  if (below === others) return { rank, text: `all ${others} other test examples` };
  return { rank, text: others < 20 ? `${below} of ${others} other test examples` : `${Math.round(rank)} % of the other test examples` };
}

function drawBars(canvas, errors, own, units) {
  if (!canvas.clientWidth) return;
  const { context, width, height } = prepareCanvas(canvas);
  const high = Math.max(...errors, own) * 1.03 || 1;
  const counts = new Array(NUM_BINS).fill(0);
  for (const error of errors) counts[Math.min(NUM_BINS - 1, Math.floor((error / high) * NUM_BINS))]++;
  const largest = Math.max(...counts);
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const x = (error) => MARGIN.left + (error / high) * inner.width;
  const y = (count) => MARGIN.top + inner.height * (1 - count / largest);
  context.fillStyle = themeColour("line");
  counts.forEach((count, n) => {
    if (count) context.fillRect(x((n * high) / NUM_BINS) + 0.5, y(count), inner.width / NUM_BINS - 1, MARGIN.top + inner.height - y(count));
  });
  context.strokeStyle = themeColour("edge");
  context.strokeRect(MARGIN.left - 0.5, MARGIN.top + inner.height + 0.5, inner.width, 0);
  context.fillStyle = themeColour("text");
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const at of ticks(0, high, inner.width / 70)) context.fillText(format(at), x(at), MARGIN.top + inner.height + 5);
  context.fillText(`RMS error${units ? ` (${units})` : ""}`, MARGIN.left + inner.width / 2, height - 14);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const at of ticks(0, largest, 3).filter(Number.isInteger)) context.fillText(at, MARGIN.left - 6, y(at));
  context.strokeStyle = context.fillStyle = themeColour("off");
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x(own), MARGIN.top);
  context.lineTo(x(own), MARGIN.top + inner.height);
  context.stroke();
  context.lineWidth = 1;
  context.textBaseline = "top";
  context.textAlign = x(own) > width / 2 ? "right" : "left";
  context.fillText("this example", x(own) + (x(own) > width / 2 ? -6 : 6), MARGIN.top);
}
