// Line charts of errors by step: the full model, the ablated model, and reference forecasts.

import { format, ticks } from "./colours.js";
import { prepareCanvas, themeColour } from "./picture.js";

const MARGIN = { left: 50, right: 12, top: 10, bottom: 34 };

// lines: {errors, colour, width, dash, isReference}; the step is marked on the first line.
export function drawErrors(canvas, lines, step) {
  const { context, width, height } = prepareCanvas(canvas);
  const count = lines[0].errors.length;
  const top = topOf(lines);
  const x = (n) => MARGIN.left + ((width - MARGIN.left - MARGIN.right) * (n + 0.5)) / count;
  const y = (error) => MARGIN.top + (height - MARGIN.top - MARGIN.bottom) * (1 - error / top);
  drawGrid(context, { width, height, top, x, y, count });
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, 0, width - MARGIN.left, height - MARGIN.bottom + 1);
  context.clip();
  for (const { errors, colour, width: lineWidth, dash } of lines.toReversed()) {
    context.strokeStyle = themeColour(colour);
    context.lineWidth = lineWidth ?? 2;
    context.setLineDash(dash ?? []);
    context.beginPath();
    errors.forEach((error, n) => error !== null && context[n ? "lineTo" : "moveTo"](x(n), y(error)));
    context.stroke();
    if (count === 1 && errors[0] !== null) dot(context, x(0), y(errors[0]), 3.5, themeColour(colour));
  }
  context.setLineDash([]);
  context.lineWidth = 1;
  const [{ errors, colour }] = lines;
  if (errors[step] !== null) dot(context, x(step), y(errors[step]), 5, themeColour(colour));
  context.restore();
}

const REFERENCE_COLOURS = 7;

// Returns the curves of reference forecasts, each in a colour of its own.
export function referenceLines(references, errorsOf) {
  return Object.entries(references).map(([text, errors], n) => ({
    text, errors: errorsOf(errors), colour: `reference-${n % REFERENCE_COLOURS}`,
    isReference: true, width: 1.6, dash: [6, 4], style: "dashed",
  }));
}

// Returns the step under a pointer.
export function stepAt(canvas, px, count) {
  const inner = canvas.clientWidth - MARGIN.left - MARGIN.right;
  return Math.min(count - 1, Math.max(0, Math.floor(((px - MARGIN.left) / inner) * count)));
}

// Returns the top of the axis: at most three times the references, so that a diverging forecast is cut off.
function topOf(lines) {
  const largest = (some) => Math.max(...some.flatMap(({ errors }) => errors.filter((error) => error !== null)), 0);
  const [all, references] = [largest(lines) || 1e-12, largest(lines.filter(({ isReference }) => isReference))];
  return 1.06 * (references > 0 ? Math.min(all, 3 * references) : all);
}

function drawGrid(context, { width, height, top, x, y, count }) {
  context.fillStyle = themeColour("text");
  context.strokeStyle = themeColour("edge");
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const at of ticks(0, top, 5)) {
    context.beginPath();
    context.moveTo(MARGIN.left, y(at));
    context.lineTo(width - MARGIN.right, y(at));
    context.stroke();
    context.fillText(format(at), MARGIN.left - 6, y(at));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const stride = Math.ceil(count / 10);
  for (let n = 0; n < count; n += stride) context.fillText(n + 1, x(n), height - MARGIN.bottom + 5);
  context.fillText("step", (MARGIN.left + width - MARGIN.right) / 2, height - 15);
}

function dot(context, x, y, radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}
