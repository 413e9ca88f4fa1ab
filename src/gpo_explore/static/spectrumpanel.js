// Error spectra: variance of truth, prediction, error and persistence by wavenumber.

import { ablationBody, isEmpty } from "./ablation.js";
import { legend } from "./legend.js";
import { prepareCanvas, themeColour } from "./picture.js";
import { showError } from "./problem.js";
import { element } from "./store.js";
import { LatestRequest } from "./requests.js";

const MARGIN = { left: 42, right: 10, top: 8, bottom: 32 };
const DECADES = 9;
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

export class SpectrumPanel {
  constructor(store) {
    this.store = store;
    this.request = new LatestRequest("spectrum");
    store.on(["example", "ablation", "variable"], () => this.load());
    store.on(["theme"], () => this.draw());
    new ResizeObserver(() => this.draw()).observe(element("spectrum"));
  }

  async load() {
    const { example, ablation, variable } = this.store;
    try {
      const answer = await this.request.send({ example, ablation: ablationBody(ablation), variable });
      if (!answer) return;
      this.answer = answer;
      this.draw();
      showError("spectrum", null);
    } catch (error) {
      showError("spectrum", error);
    }
  }

  get lines() {
    const { arrays } = this.answer;
    const isFull = isEmpty(this.store.ablation);
    return [
      { name: "truth", text: "truth", colour: "text", width: 1.6 },
      { name: "predicted", text: "prediction", colour: "curve", width: 2 },
      { name: "error", text: isFull ? "error" : "error of the ablated model", colour: "off", width: 2 },
      { name: "whole", text: "error of the full model", colour: "off", width: 1.4, dash: [2, 3], style: "dotted" },
      { name: "persistence", text: "error of persistence", colour: "reference-0", width: 1.4, dash: [6, 4], style: "dashed" },
    ].filter(({ name }) => arrays[name]);
  }

  draw() {
    if (!this.answer) return;
    const { arrays, metadata } = this.answer;
    const canvas = element("spectrum");
    canvas.hidden = element("spectrum-legend").hidden = Boolean(metadata.reason);
    if (metadata.reason) {
      element("spectrum-seen").textContent = `No spectrum: ${metadata.reason}. A spectrum needs a uniform grid without masked sites.`;
      return;
    }
    element("spectrum-seen").textContent = this.describe();
    canvas.setAttribute("aria-label", `Variance by ${metadata.label}. ${this.describe()}`);
    const lines = this.lines.map((line) => ({ ...line, values: arrays[line.name].data }));
    drawLines(canvas, Array.from(arrays.wavenumbers.data), lines, metadata.label);
    legend("spectrum-legend", lines.map(({ text, colour, style }) => ({ text, colour: themeColour(colour), style })));
  }

  describe() {
    const { arrays, metadata } = this.answer;
    const numbers = arrays.wavenumbers.data;
    const [truth, error] = [arrays.truth.data, arrays.error.data];
    const largest = Math.max(...truth);
    // Scales without variance in the truth are ignored.
    const first = Array.from(numbers.keys()).find((n) => truth[n] > 1e-12 * largest && error[n] >= truth[n]);
    const percent = (value) => (value === null ? "–" : value >= 10 ? `${Math.round(value)} ×` : value >= 0.995 ? `${Math.round(100 * value)} %` : `${(100 * value).toPrecision(2)} %`);
    const { bands } = metadata;
    const relative = bands ? `Relative error at low, middle and high ${metadata.label}s: ${percent(bands.low)}, ${percent(bands.middle)}, ${percent(bands.high)}. ` : "";
    return relative + (first === undefined
      ? "The error has less variance than the field at all scales."
      : `The error first reaches the variance of the field at ${metadata.label} ${numbers[first]}.`);
  }
}

function drawLines(canvas, numbers, lines, label) {
  if (!canvas.clientWidth) return;
  const { context, width, height } = prepareCanvas(canvas);
  const logs = lines.flatMap(({ values }) => Array.from(values).filter((value) => value > 0).map(Math.log10));
  const high = Math.ceil(Math.max(...logs, -300));
  const low = Math.max(high - DECADES, Math.floor(Math.min(...logs, high - 1)));
  const [first, last] = [Math.log10(numbers[0]), Math.log10(Math.max(numbers.at(-1), numbers[0] + 1))];
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const x = (number) => MARGIN.left + ((Math.log10(number) - first) / (last - first)) * inner.width;
  const y = (power) => MARGIN.top + ((high - power) / (high - low)) * inner.height;
  drawGrid(context, { numbers, low, high, x, y, inner, label, height });
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, inner.width + 1, inner.height);
  context.clip();
  for (const { values, colour, width: lineWidth, dash } of lines.toReversed()) {
    context.strokeStyle = themeColour(colour);
    context.lineWidth = lineWidth;
    context.setLineDash(dash ?? []);
    context.beginPath();
    numbers.forEach((number, n) => context[n ? "lineTo" : "moveTo"](x(number), y(values[n] > 0 ? Math.log10(values[n]) : low - 1)));
    context.stroke();
  }
  context.restore();
}

function drawGrid(context, { numbers, low, high, x, y, inner, label, height }) {
  context.strokeStyle = themeColour("edge");
  context.fillStyle = themeColour("text");
  context.textAlign = "right";
  context.textBaseline = "middle";
  const stride = Math.ceil((high - low) / 5);
  for (let power = high; power >= low; power -= stride) {
    context.beginPath();
    context.moveTo(MARGIN.left, y(power));
    context.lineTo(MARGIN.left + inner.width, y(power));
    context.stroke();
    const exponent = [...String(power)].map((sign) => (sign === "-" ? "⁻" : SUPERSCRIPTS[sign])).join("");
    context.fillText(`10${exponent}`, MARGIN.left - 5, y(power));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const at of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]) {
    if (at >= numbers[0] && at <= numbers.at(-1)) context.fillText(at, x(at), MARGIN.top + inner.height + 5);
  }
  context.fillText(label, MARGIN.left + inner.width / 2, height - 14);
}
