// Colour bars with tick labels, vertical or horizontal.

import { format, ticks } from "./colours.js";
import { themeColour } from "./picture.js";

// Draws a vertical bar, with its units above it.
export function drawColourBar(context, scale, units, { x, y, width, height }) {
  const [low, high] = scale.limits;
  context.drawImage(strip(scale.palette.toReversed(), 1), x, y, width, height);
  outline(context, x, y, width, height);
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const at of ticks(low, high, Math.max(height > 60 ? 4 : 2, height / 35))) {
    const row = y + ((high - at) / (high - low)) * height;
    line(context, x + width, row, x + width + 3, row);
    context.fillText(format(at), x + width + 6, row);
  }
  context.textBaseline = "alphabetic";
  context.fillText(units, x, y - 9);
}

// Draws a horizontal bar, with its units at its end.
export function drawHorizontalBar(context, scale, units, { x, y, width, height }) {
  const [low, high] = scale.limits;
  const unitsWidth = units ? context.measureText(units).width + 10 : 0;
  const length = Math.max(40, width - unitsWidth);
  context.drawImage(strip(scale.palette, scale.palette.length), x, y, length, height);
  outline(context, x, y, length, height);
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const at of ticks(low, high, Math.max(length > 150 ? 4 : 2, length / 62))) {
    const column = x + ((at - low) / (high - low)) * length;
    line(context, column, y + height, column, y + height + 3);
    const half = context.measureText(format(at)).width / 2;
    context.fillText(format(at), Math.min(Math.max(column, x + half - 6), x + length - half + 6), y + height + 5);
  }
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(units, x + length + 8, y + height / 2);
}

// Returns a palette as an image of one pixel per colour, `width` pixels wide.
export function strip(palette, width) {
  const image = new ImageData(width, palette.length / width);
  new Uint32Array(image.data.buffer).set(palette);
  const buffer = new OffscreenCanvas(image.width, image.height);
  buffer.getContext("2d").putImageData(image, 0, 0);
  return buffer;
}

function outline(context, x, y, width, height) {
  context.fillStyle = themeColour("text");
  context.strokeStyle = themeColour("line");
  context.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
}

export function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
