// How typical the example is: where its error stands among those of all test examples.

import { short, ticks, withUnits } from "./colours.js";
import { LongAsk } from "./longask.js";
import { fitted, themeColour } from "./picture.js";
import { complain } from "./problem.js";
import { element } from "./store.js";

const ROOM = { left: 34, right: 10, top: 8, bottom: 32 };
const BINS = 24;
const PLACES = ["easiest", "middle", "hardest"];
const MOST_SECONDS = 20;
const WORDS = [[10, "among the easiest"], [35, "easier than most"], [65, "a typical one"], [90, "harder than most"], [101, "among the hardest"]];

export class TypicalPanel {
  constructor(store) {
    this.store = store;
    this.long = new LongAsk("typical", ({ done, of }) => this.say(`${done} of ${of} test examples…`, true));
    element("typical-compute").addEventListener("click", () => (this.long.isBusy ? this.stop() : this.load()));
    for (const id of PLACES) {
      element(`typical-${id}`).addEventListener("click", () => this.go(id));
    }
    store.on(["frames", "example", "variable", "theme"], () => this.draw());
    new ResizeObserver(() => this.draw()).observe(element("typical"));
  }

  // Starts by itself where it takes but seconds; else a button does.
  begin() {
    const { prediction, run } = this.store;
    const seconds = (prediction?.metadata.seconds ?? 0) * Math.min(256, run.examples.length);
    if (seconds <= MOST_SECONDS) return this.load();
    const text = seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
    this.say(`Predicting all test examples takes about ${text}.`);
    return null;
  }

  stop() {
    this.long.stop();
    this.say("Stopped.");
  }

  say(text, isBusy = false) {
    element("typical-seen").textContent = text;
    const button = element("typical-compute");
    button.hidden = Boolean(this.found);
    for (const id of PLACES) element(`typical-${id}`).hidden = !this.found;
    button.textContent = isBusy ? "Stop" : "Compute";
  }

  async load() {
    this.say("Errors of the test examples are on the way…", true);
    try {
      const found = await this.long.ask({});
      if (!found) return;
      this.found = found;
      this.say("");
      this.draw();
      complain("typical", null);
    } catch (error) {
      this.say("");
      complain("typical", error);
    }
  }

  // Returns the errors of the chosen variable in all examples, of the model or another forecast.
  errors(name) {
    const { data, shape } = this.found.arrays[name];
    return Array.from({ length: shape[0] }, (_, n) => data[n * shape[1] + this.store.variable]);
  }

  // Goes to the example with the smallest, the middle or the largest error.
  go(which) {
    if (!this.found) return;
    const numbers = this.found.arrays.numbers.data;
    const errors = this.errors("model");
    const order = Array.from(errors.keys()).filter((n) => Number.isFinite(errors[n])).sort((a, b) => errors[a] - errors[b]);
    const place = { easiest: 0, middle: (order.length - 1) >> 1, hardest: order.length - 1 }[which];
    if (order.length) this.store.set({ example: numbers[order[place]] });
  }

  draw() {
    const { frames, variable, run } = this.store;
    if (!this.found || !frames) return;
    const errors = this.errors("model").filter(Number.isFinite);
    const here = frames.metadata.errors.rms[variable];
    if (here === null || !errors.length) return;
    const { units } = run.outputs[variable];
    const { rank, text } = standing(errors, here);
    const [, word] = WORDS.find(([end]) => rank < end);
    const whole = this.found.metadata.num_examples;
    const some = errors.length < whole ? ` (of ${errors.length} among ${whole}, evenly chosen)` : "";
    element("typical-seen").textContent = errors.length < 2
      ? `RMS error ${withUnits(here, units)}: the only test example.`
      : `RMS error ${withUnits(here, units)}: larger than in ${text}${some}, ${word}.`;
    element("typical-beside").textContent = [this.still(units), this.second(units)].filter(Boolean).join(" ");
    drawBars(element("typical"), errors, here, units);
    element("typical").setAttribute("aria-label", `Errors of ${errors.length} test examples from ${short(Math.min(...errors))} to ${withUnits(Math.max(...errors), units)}; this one ${short(here)}`);
  }

  // Persistence is the control: it tells whether the field changes more than usual.
  still(units) {
    if (!this.found.arrays.persistence) return "";
    const all = this.errors("persistence");
    const here = all[this.place];
    if (!Number.isFinite(here)) return "";
    if (all.length < 2) return `Persistence errs by ${withUnits(here, units)}.`;
    const { rank, text } = standing(all.filter(Number.isFinite), here);
    const change = rank < 35 ? "little changes here" : rank > 65 ? "much changes here" : "as much changes as usual";
    return `Persistence errs by ${withUnits(here, units)}, more than in ${text}: ${change}.`;
  }

  second(units) {
    const { compared } = this.store.run;
    if (!this.found.arrays.other) return "";
    const [ours, theirs] = [this.errors("model"), this.errors("other")];
    const both = ours.map((_, n) => n).filter((n) => Number.isFinite(ours[n]) && Number.isFinite(theirs[n]));
    const wins = both.filter((n) => theirs[n] < ours[n]).length;
    const mean = (values) => both.reduce((sum, n) => sum + values[n], 0) / Math.max(1, both.length);
    return `${compared.name} errs less in ${wins} of ${both.length} examples that both test; ` +
      `mean ${short(mean(theirs))} against ${withUnits(mean(ours), units)}.`;
  }

  // Where the example stands among those that were scored; -1 where it was left out.
  get place() {
    return this.found.arrays.numbers.data.indexOf(this.store.example);
  }
}

// Returns {rank, text}: how many of a hundred other values are smaller; few are counted in words.
export function standing(values, value) {
  const others = Math.max(1, values.length - 1);
  // Numbers that travelled differ by rounding.
  const below = Math.min(others, values.filter((other) => other < value - 1e-5 * Math.abs(value)).length);
  const rank = (100 * below) / others;
  if (below === 0) return { rank, text: "no other test example" };
  if (below === others) return { rank, text: `all ${others} other test examples` };
  return { rank, text: others < 20 ? `${below} of ${others} other test examples` : `${Math.round(rank)} % of the other test examples` };
}

function drawBars(canvas, errors, here, units) {
  if (!canvas.clientWidth) return;
  const { context, width, height } = fitted(canvas);
  const high = Math.max(...errors, here) * 1.03 || 1;
  const counts = new Array(BINS).fill(0);
  for (const error of errors) counts[Math.min(BINS - 1, Math.floor((error / high) * BINS))]++;
  const most = Math.max(...counts);
  const inner = { width: width - ROOM.left - ROOM.right, height: height - ROOM.top - ROOM.bottom };
  const x = (error) => ROOM.left + (error / high) * inner.width;
  const y = (count) => ROOM.top + inner.height * (1 - count / most);
  context.fillStyle = themeColour("line");
  counts.forEach((count, n) => {
    if (count) context.fillRect(x((n * high) / BINS) + 0.5, y(count), inner.width / BINS - 1, ROOM.top + inner.height - y(count));
  });
  context.strokeStyle = themeColour("edge");
  context.strokeRect(ROOM.left - 0.5, ROOM.top + inner.height + 0.5, inner.width, 0);
  context.fillStyle = themeColour("text");
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const at of ticks(0, high, inner.width / 70)) context.fillText(short(at), x(at), ROOM.top + inner.height + 5);
  context.fillText(`RMS error${units ? ` (${units})` : ""}`, ROOM.left + inner.width / 2, height - 14);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const at of ticks(0, most, 3).filter(Number.isInteger)) context.fillText(at, ROOM.left - 6, y(at));
  context.strokeStyle = context.fillStyle = themeColour("off");
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x(here), ROOM.top);
  context.lineTo(x(here), ROOM.top + inner.height);
  context.stroke();
  context.lineWidth = 1;
  context.textBaseline = "top";
  context.textAlign = x(here) > width / 2 ? "right" : "left";
  context.fillText("this one", x(here) + (x(here) > width / 2 ? -6 : 6), ROOM.top);
}
