// Errors by step on a canvas: the model, the model with parts off, and references without a model.

import { short, ticks } from "./colours.js";
import { fitted, themeColour } from "./picture.js";

const ROOM = { left: 50, right: 12, top: 10, bottom: 34 };

// lines: {errors, colour, width, dash}; the step is marked on the first of them.
export function drawErrors(canvas, lines, step) {
  const { context, width, height } = fitted(canvas);
  const count = lines[0].errors.length;
  const known = lines.flatMap(({ errors }) => errors.filter((error) => error !== null));
  const most = topOf(lines, known);
  const x = (n) => ROOM.left + ((width - ROOM.left - ROOM.right) * (n + 0.5)) / count;
  const y = (error) => ROOM.top + (height - ROOM.top - ROOM.bottom) * (1 - error / most);
  drawGrid(context, { width, height, most, x, y, count });
  context.save();
  context.beginPath();
  context.rect(ROOM.left, 0, width - ROOM.left, height - ROOM.bottom + 1);
  context.clip();
  for (const { errors, colour, width: thick, dash } of lines.toReversed()) {
    context.strokeStyle = themeColour(colour);
    context.lineWidth = thick ?? 2;
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

// Returns the step under a pointer.
export function stepAt(canvas, px, count) {
  const inner = canvas.clientWidth - ROOM.left - ROOM.right;
  return Math.min(count - 1, Math.max(0, Math.floor(((px - ROOM.left) / inner) * count)));
}

// A forecast that runs away leaves the picture, so that the others are still told apart.
function topOf(lines, known) {
  const largest = Math.max(...known, 1e-12);
  const references = lines.filter(({ isReference }) => isReference).flatMap(({ errors }) => errors);
  const usual = Math.max(...references.filter((error) => error !== null), 0);
  return 1.06 * (usual > 0 ? Math.min(largest, 3 * usual) : largest);
}

function drawGrid(context, { width, height, most, x, y, count }) {
  context.fillStyle = themeColour("text");
  context.strokeStyle = themeColour("edge");
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const at of ticks(0, most, 5)) {
    context.beginPath();
    context.moveTo(ROOM.left, y(at));
    context.lineTo(width - ROOM.right, y(at));
    context.stroke();
    context.fillText(short(at), ROOM.left - 6, y(at));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const every = Math.ceil(count / 10);
  for (let n = 0; n < count; n += every) context.fillText(n + 1, x(n), height - ROOM.bottom + 5);
  context.fillText("step", (ROOM.left + width - ROOM.right) / 2, height - 15);
}

function dot(context, x, y, radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}
