// A heat map of selectable cells: modes by wave vector or head, or couplings between modes.

import { format, painter } from "./colours.js";
import { drawColourBar } from "./colourbar.js";
import { packedColour, prepareCanvas, themeColour } from "./picture.js";

export class CellMap {
  // onSelect and onToggle are called with the index of a cell, to select it or to switch it off or on.
  constructor(canvas, { onSelect, onToggle }) {
    this.canvas = canvas;
    this.onSelect = onSelect;
    this.onToggle = onToggle;
    this.cursor = 0;
    canvas.addEventListener("click", (event) => {
      const place = this.placeAt(event.offsetX, event.offsetY);
      if (place < 0) return;
      this.cursor = place;
      if (event.shiftKey) this.onToggle(place);
      else this.onSelect(place);
    });
    canvas.addEventListener("pointermove", (event) => {
      const place = this.placeAt(event.offsetX, event.offsetY);
      canvas.title = place < 0 ? "" : this.text(place);
    });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("focus", () => this.redraw());
    canvas.addEventListener("blur", () => this.redraw());
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // content: {columns, rows, values, scale, units, across, up, acrossTicks, upTicks, marks, isOff, name}
  // The first row is at the top; marks are {place, colour}. The cursor starts at the first mark.
  show(content) {
    const marked = content.marks?.[0]?.place;
    if (marked !== undefined && marked !== this.marked) this.cursor = marked;
    this.marked = marked;
    this.content = content;
    this.cursor = Math.min(this.cursor, content.values.length - 1);
    this.redraw();
  }

  onKey(event) {
    if (!this.content) return;
    const { columns, rows } = this.content;
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in steps) {
      const [right, down] = steps[event.key];
      const column = Math.min(columns - 1, Math.max(0, (this.cursor % columns) + right));
      const row = Math.min(rows - 1, Math.max(0, Math.floor(this.cursor / columns) + down));
      this.cursor = row * columns + column;
      this.redraw();
    } else if (event.key === "Enter") this.onSelect(this.cursor);
    else if (event.key === " ") this.onToggle(this.cursor);
    else return;
    event.preventDefault();
  }

  placeAt(px, py) {
    if (!this.content) return -1;
    const { columns, rows } = this.content;
    const { x, y, size, cellHeight } = this.frame;
    const column = Math.floor((px - x) / size);
    const row = Math.floor((py - y) / cellHeight);
    return column < 0 || row < 0 || column >= columns || row >= rows ? -1 : row * columns + column;
  }

  redraw() {
    if (!this.content || !this.canvas.clientWidth) return;
    const { columns, rows, values, scale, units, marks, isOff, name } = this.content;
    const { context, width, height } = prepareCanvas(this.canvas);
    const [left, right, top, bottom] = [46, 74, 6, 34];
    const size = Math.min((width - left - right) / columns, 40);
    const cellHeight = Math.min((height - top - bottom) / rows, Math.max(size, 30));
    this.frame = { x: left, y: top, size, cellHeight };
    this.drawCells(context, columns * size, rows * cellHeight);
    for (let n = 0; n < values.length; n++) {
      if (isOff?.(n)) cross(context, ...this.corner(n), size, cellHeight);
    }
    this.drawAxes(context, size, cellHeight);
    drawColourBar(context, scale, units, {
      x: left + columns * size + 10, y: top + 16, width: 12, height: Math.max(40, rows * cellHeight - 18),
    });
    for (const { place, colour } of marks ?? []) this.frameCell(context, place, colour, 2.5);
    if (document.activeElement === this.canvas) {
      this.frameCell(context, this.cursor, themeColour("focus"), 2);
    }
    this.canvas.setAttribute("aria-label", `${name} ${this.text(this.cursor)}`);
  }

  text(place) {
    const { values, units, describe } = this.content;
    return `${describe(place)}: ${format(values[place])} ${units}`;
  }

  // Draws one pixel per cell and enlarges the image.
  drawCells(context, width, height) {
    const { columns, rows, values, scale } = this.content;
    const image = new ImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const [colourOf, missing] = [painter(scale), packedColour(themeColour("unknown"))];
    for (let n = 0; n < pixels.length; n++) {
      pixels[n] = Number.isFinite(values[n]) ? colourOf(values[n]) : missing;
    }
    const buffer = new OffscreenCanvas(columns, rows);
    buffer.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(buffer, this.frame.x, this.frame.y, width, height);
  }

  corner(place) {
    const { x, y, size, cellHeight } = this.frame;
    const { columns } = this.content;
    return [x + (place % columns) * size, y + Math.floor(place / columns) * cellHeight];
  }

  frameCell(context, place, colour, width) {
    const { size, cellHeight } = this.frame;
    const [x, y] = this.corner(place);
    context.lineWidth = width + 2;
    context.strokeStyle = themeColour("panel");
    context.strokeRect(x - 1, y - 1, size + 2, cellHeight + 2);
    context.lineWidth = width;
    context.strokeStyle = colour;
    context.strokeRect(x - 1, y - 1, size + 2, cellHeight + 2);
    context.lineWidth = 1;
  }

  drawAxes(context, size, cellHeight) {
    const { columns, rows, across, up, acrossTicks, upTicks } = this.content;
    const { x, y } = this.frame;
    context.fillStyle = themeColour("text");
    context.textAlign = "center";
    context.textBaseline = "top";
    thinned(acrossTicks, columns * size, 30).forEach(([n, text]) =>
      context.fillText(text, x + (n + 0.5) * size, y + rows * cellHeight + 4),
    );
    context.fillText(across, x + (columns * size) / 2, y + rows * cellHeight + 18);
    context.textAlign = "right";
    context.textBaseline = "middle";
    thinned(upTicks, rows * cellHeight, 18).forEach(([n, text]) =>
      context.fillText(text, x - 5, y + (n + 0.5) * cellHeight),
    );
    context.save();
    context.translate(9, y + (rows * cellHeight) / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(up, 0, 0);
    context.restore();
  }
}

// Returns as many labels as fit, including the zero.
function thinned(labels, length, spacing) {
  const stride = Math.max(1, Math.ceil((spacing * labels.length) / Math.max(1, length)));
  const zero = Math.max(0, labels.indexOf("0"));
  return labels.map((text, n) => [n, text]).filter(([n]) => (n - zero) % stride === 0);
}

function cross(context, x, y, width, height) {
  context.strokeStyle = themeColour("off");
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x + 1, y + 1);
  context.lineTo(x + width - 1, y + height - 1);
  context.moveTo(x + width - 1, y + 1);
  context.lineTo(x + 1, y + height - 1);
  context.stroke();
  context.lineWidth = 1;
}
