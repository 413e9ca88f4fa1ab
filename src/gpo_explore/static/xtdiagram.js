// A space-time diagram of a one-dimensional field: the forecast as colours, and the paths of tracers.

import { drawColourBar, line } from "./colourbar.js";
import { format, painter, ticks } from "./colours.js";
import { packedColour, prepareCanvas, themeColour } from "./picture.js";
import { labelOf, scaleFor } from "./shownfield.js";
import { column } from "./store.js";

const MARGIN = { left: 64, right: 84, top: 10, bottom: 38 };
const NUM_TRACERS = 28;

export class XtDiagram {
  constructor(canvas, geometry) {
    this.canvas = canvas;
    this.geometry = geometry;
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // Returns the start points of the tracers, evenly spaced.
  starts() {
    const { geometry } = this;
    const [low, high] = [geometry.lower[0], geometry.upper[0]];
    return Array.from({ length: NUM_TRACERS }, (_, n) => [low + ((n + 0.5) / NUM_TRACERS) * (high - low)]);
  }

  show(store, tracers) {
    this.geometry = store.geometry;
    this.store = store;
    this.tracers = tracers;
    this.redraw();
  }

  // Returns the frames of the field: the last input, then the forecasts.
  rows() {
    const { frames, rollout, variable } = this.store;
    const inputs = frames.arrays.given;
    const first = column(inputs, variable, inputs.shape[0] - 1);
    const count = rollout?.arrays.forecast.shape[0] ?? 0;
    return [first, ...Array.from({ length: count }, (_, n) => column(rollout.arrays.forecast, variable, n))];
  }

  redraw() {
    if (!this.store || !this.canvas.clientWidth) return;
    const { context, width, height } = prepareCanvas(this.canvas);
    const frame = { x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const rows = this.rows();
    const output = this.store.run.outputs[this.store.variable];
    const scale = scaleFor(this.store, output, rows);
    this.drawField(context, frame, rows, scale);
    this.drawAxes(context, frame, rows.length);
    drawColourBar(context, scale, labelOf(output), { x: frame.x + frame.width + 10, y: frame.y + 18, width: 12, height: frame.height - 22 });
    if (this.tracers) this.drawPaths(context, frame, rows.length);
  }

  drawField(context, frame, rows, scale) {
    const [columns, lines] = [Math.max(1, Math.round(frame.width)), rows.length];
    const sites = this.geometry.raster({ left: this.geometry.lower[0], right: this.geometry.upper[0], bottom: 0, top: 1 }, columns, 1);
    const image = new ImageData(columns, lines);
    const pixels = new Uint32Array(image.data.buffer);
    const [colourOf, missing] = [painter(scale), packedColour(themeColour("unknown"))];
    rows.forEach((values, n) => {
      for (let k = 0; k < columns; k++) {
        const value = values[sites[k]];
        pixels[(lines - 1 - n) * columns + k] = Number.isFinite(value) ? colourOf(value) : missing;
      }
    });
    const buffer = new OffscreenCanvas(columns, lines);
    buffer.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(buffer, frame.x, frame.y, frame.width, frame.height);
    context.strokeStyle = themeColour("line");
    context.strokeRect(frame.x - 0.5, frame.y - 0.5, frame.width + 1, frame.height + 1);
  }

  drawAxes(context, frame, count) {
    const { geometry } = this;
    const [low, high] = [geometry.lower[0], geometry.upper[0]];
    context.fillStyle = themeColour("text");
    context.strokeStyle = themeColour("line");
    context.textAlign = "center";
    context.textBaseline = "top";
    const bottom = frame.y + frame.height;
    for (const at of ticks(low, high, frame.width / 80)) {
      const x = frame.x + ((at - low) / (high - low)) * frame.width;
      line(context, x, bottom, x, bottom + 4);
      context.fillText(format(at), x, bottom + 6);
    }
    context.fillText(geometry.label(0), frame.x + frame.width / 2, bottom + 20);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const labels = this.tracers?.metadata.labels ?? [];
    const stride = Math.max(1, Math.ceil(count / 10));
    for (let n = 0; n < count; n += stride) {
      context.fillText(labels[n] ?? `step ${n}`, frame.x - 7, this.y(frame, n, count));
    }
  }

  // Returns the center of the row of a frame.
  y(frame, time, count) {
    return frame.y + frame.height * (1 - (time + 0.5) / count);
  }

  drawPaths(context, frame, count) {
    const { geometry } = this;
    const [low, high] = [geometry.lower[0], geometry.upper[0]];
    const period = geometry.periodOf(0);
    const x = (at) => frame.x + (((period ? (((at - low) % period) + period) % period : at - low)) / (high - low)) * frame.width;
    const { data, shape } = this.tracers.arrays.model;
    const path = new Path2D();
    for (let tracer = 0; tracer < shape[0]; tracer++) {
      let last = null;
      for (let n = 0; n < Math.min(shape[1], count); n++) {
        const at = x(data[tracer * shape[1] + n]);
        if (last !== null && Math.abs(at - last) < frame.width / 2) path.lineTo(at, this.y(frame, n, count));
        else path.moveTo(at, this.y(frame, n, count));
        last = at;
      }
    }
    context.save();
    context.beginPath();
    context.rect(frame.x, frame.y, frame.width, frame.height);
    context.clip();
    for (const [width, colour] of [[4, "#0b1018a0"], [1.8, themeColour("first")]]) {
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke(path);
    }
    context.restore();
    context.lineWidth = 1;
  }
}
