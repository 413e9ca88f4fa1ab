// The error by scale: variance by wave number of truth, prediction, error and persistence.

import { isNothing, plain } from "./ablation.js";
import { legend } from "./legend.js";
import { fitted, themeColour } from "./picture.js";
import { complain } from "./problem.js";
import { element } from "./store.js";
import { Latest } from "./wire.js";

const ROOM = { left: 42, right: 10, top: 8, bottom: 32 };
const DECADES = 9;
const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

export class SpectrumPanel {
  constructor(store) {
    this.store = store;
    this.latest = new Latest("spectrum");
    store.on(["example", "ablation", "variable"], () => this.load());
    store.on(["theme"], () => this.draw());
    new ResizeObserver(() => this.draw()).observe(element("spectrum"));
  }

  async load() {
    const { example, ablation, variable } = this.store;
    try {
      const found = await this.latest.ask({ example, ablation: plain(ablation), variable });
      if (!found) return;
      this.found = found;
      this.draw();
      complain("spectrum", null);
    } catch (error) {
      complain("spectrum", error);
    }
  }

  get lines() {
    const { arrays } = this.found;
    const isWhole = isNothing(this.store.ablation);
    return [
      { name: "truth", text: "truth", colour: "text", width: 1.6 },
      { name: "predicted", text: "prediction", colour: "curve", width: 2 },
      { name: "error", text: isWhole ? "error" : "error without what is off", colour: "off", width: 2 },
      { name: "whole", text: "error of the whole model", colour: "off", width: 1.4, dash: [2, 3], style: "dotted" },
      { name: "persistence", text: "error of persistence", colour: "persistence", width: 1.4, dash: [6, 4], style: "dashed" },
    ].filter(({ name }) => arrays[name]);
  }

  draw() {
    if (!this.found) return;
    const { arrays, metadata } = this.found;
    const canvas = element("spectrum");
    canvas.hidden = element("spectrum-legend").hidden = Boolean(metadata.reason);
    if (metadata.reason) {
      element("spectrum-seen").textContent = `No spectrum: ${metadata.reason}. It needs a uniform grid without gaps.`;
      return;
    }
    element("spectrum-seen").textContent = this.words();
    canvas.setAttribute("aria-label", `Variance by ${metadata.label}. ${this.words()}`);
    const lines = this.lines.map((line) => ({ ...line, values: arrays[line.name].data }));
    drawLines(canvas, Array.from(arrays.wavenumbers.data), lines, metadata.label);
    legend("spectrum-legend", lines.map(({ text, colour, style }) => ({ text, colour: themeColour(colour), style })));
  }

  words() {
    const { arrays, metadata } = this.found;
    const numbers = arrays.wavenumbers.data;
    const [truth, error] = [arrays.truth.data, arrays.error.data];
    const most = Math.max(...truth);
    // Scales on which the truth has nothing to be wrong about do not count.
    const lost = Array.from(numbers.keys()).find((n) => truth[n] > 1e-12 * most && error[n] >= truth[n]);
    const part = (value) => (value === null ? "–" : value >= 10 ? `${Math.round(value)} ×` : value >= 0.995 ? `${Math.round(100 * value)} %` : `${(100 * value).toPrecision(2)} %`);
    const { bands } = metadata;
    const told = bands ? `Relative error at low, middle and high ${metadata.label}s: ${part(bands.low)}, ${part(bands.middle)}, ${part(bands.high)}. ` : "";
    return told + (lost === undefined
      ? "On no scale is the error as large as the field."
      : `First at ${metadata.label} ${numbers[lost]} the error is as large as the field itself.`);
  }
}

function drawLines(canvas, numbers, lines, label) {
  if (!canvas.clientWidth) return;
  const { context, width, height } = fitted(canvas);
  const logs = lines.flatMap(({ values }) => Array.from(values).filter((value) => value > 0).map(Math.log10));
  const high = Math.ceil(Math.max(...logs, -300));
  const low = Math.max(high - DECADES, Math.floor(Math.min(...logs, high - 1)));
  const [first, last] = [Math.log10(numbers[0]), Math.log10(Math.max(numbers.at(-1), numbers[0] + 1))];
  const inner = { width: width - ROOM.left - ROOM.right, height: height - ROOM.top - ROOM.bottom };
  const x = (number) => ROOM.left + ((Math.log10(number) - first) / (last - first)) * inner.width;
  const y = (power) => ROOM.top + ((high - power) / (high - low)) * inner.height;
  drawGrid(context, { numbers, low, high, x, y, inner, label, height });
  context.save();
  context.beginPath();
  context.rect(ROOM.left, ROOM.top, inner.width + 1, inner.height);
  context.clip();
  for (const { values, colour, width: thick, dash } of lines.toReversed()) {
    context.strokeStyle = themeColour(colour);
    context.lineWidth = thick;
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
  const every = Math.ceil((high - low) / 5);
  for (let power = high; power >= low; power -= every) {
    context.beginPath();
    context.moveTo(ROOM.left, y(power));
    context.lineTo(ROOM.left + inner.width, y(power));
    context.stroke();
    const raised = [...String(power)].map((sign) => (sign === "-" ? "⁻" : RAISED[sign])).join("");
    context.fillText(`10${raised}`, ROOM.left - 5, y(power));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const at of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]) {
    if (at >= numbers[0] && at <= numbers.at(-1)) context.fillText(at, x(at), ROOM.top + inner.height + 5);
  }
  context.fillText(label, ROOM.left + inner.width / 2, height - 14);
}
