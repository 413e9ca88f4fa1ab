// A field on a canvas: coloured cells with axes and a colour bar, or curves in one dimension.

import { painter, short, ticks } from "./colours.js";

const MARGIN = { left: 50, right: 78, top: 8, bottom: 36 };

export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function imageWord(cssColour) {
  const number = parseInt(cssColour.slice(1), 16);
  return (255 << 24) | ((number & 255) << 16) | (number & 0xff00) | (number >> 16);
}

// Prepares a canvas for its size on the page; returns its context, in CSS pixels.
export function fitted(canvas) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = Math.max(40, canvas.clientWidth);
  const height = Math.max(40, canvas.clientHeight);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return { context, width, height, ratio };
}

// Gives a canvas the height that its geometry needs at its width; margins are what is not field.
export function suit(canvas, geometry, most, below, beside) {
  const { left, right, bottom, top } = geometry.homeBox();
  const ratio = (right - left) / (top - bottom);
  const isLong = ratio > 5 || ratio < 0.2 || geometry.numAxes === 1;
  const height = isLong ? 0.6 * most : below + (canvas.clientWidth - beside) / ratio;
  canvas.style.height = `${Math.round(Math.min(most, Math.max(0.4 * most, height)))}px`;
}

export class Picture {
  // A bare picture has neither axes nor numbers beside them.
  constructor(canvas, { isBare = false } = {}) {
    this.canvas = canvas;
    this.isMeantBare = isBare;
    this.cached = { key: "", sites: null };
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // content: {geometry, box, values, scale, units, outlines, ablated, curves, over}
  show(content) {
    this.content = content;
    this.redraw();
  }

  // Curves need the numbers beside them.
  get isBare() {
    return this.isMeantBare && this.content.geometry.numAxes > 1;
  }

  redraw() {
    if (!this.content || !this.canvas.clientWidth) return;
    const { geometry, box, scale, units } = this.content;
    this.margin = this.isBare ? { left: 4, right: 78, top: 4, bottom: 4 } : MARGIN;
    const fit = fitted(this.canvas);
    this.fit = fit;
    const { left, right, top, bottom } = this.margin;
    const frame = { x: left, y: top, width: fit.width - left - right, height: fit.height - top - bottom };
    if (geometry.numAxes > 1) this.keepAspect(frame, box);
    this.frame = frame;
    const context = fit.context;
    if (geometry.numAxes === 1) this.drawCurves(context, frame);
    else {
      this.drawCells(context, frame);
      this.drawBar(context, frame, scale, units);
    }
    if (!this.isBare) this.drawAxes(context, frame);
    context.save();
    context.beginPath();
    context.rect(frame.x, frame.y, frame.width, frame.height);
    context.clip();
    this.content.over?.(context, this);
    context.restore();
  }

  // Lengths are equal along both axes unless the domain is very long.
  keepAspect(frame, box) {
    const ratio = (box.right - box.left) / (box.top - box.bottom);
    if (ratio > 5 || ratio < 0.2) return;
    const width = Math.min(frame.width, frame.height * ratio);
    const height = width / ratio;
    frame.width = width;
    frame.height = height;
  }

  toPixel(x, y) {
    const { box } = this.content;
    const { frame } = this;
    return [
      frame.x + ((x - box.left) / (box.right - box.left)) * frame.width,
      frame.y + ((box.top - y) / (box.top - box.bottom)) * frame.height,
    ];
  }

  toPlane(px, py) {
    const { box } = this.content;
    const { frame } = this;
    return [
      box.left + ((px - frame.x) / frame.width) * (box.right - box.left),
      box.top - ((py - frame.y) / frame.height) * (box.top - box.bottom),
    ];
  }

  isInside(px, py) {
    const { x, y, width, height } = this.frame;
    return px >= x && px < x + width && py >= y && py < y + height;
  }

  sites(width, height) {
    const { geometry, box } = this.content;
    const key = JSON.stringify([box, width, height, geometry.slice]);
    if (this.cached.key !== key || this.cached.geometry !== geometry) {
      this.cached = { key, geometry, sites: geometry.raster(box, width, height) };
    }
    return this.cached.sites;
  }

  drawCells(context, frame) {
    const { geometry, values, scale, ablated, outlines } = this.content;
    // Looking for the nearest point takes longer than looking along axes.
    const density = geometry.kind === "points" ? 0.5 : this.fit.ratio;
    const width = Math.max(1, Math.round(frame.width * density));
    const height = Math.max(1, Math.round(frame.height * density));
    const sites = this.sites(width, height);
    const image = new ImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const unknown = imageWord(themeColour("unknown"));
    const colourOf = painter(scale);
    const { known } = geometry;
    for (let n = 0; n < pixels.length; n++) {
      const site = sites[n];
      if (site < 0) continue;
      const value = values[site];
      pixels[n] = known[site] && Number.isFinite(value) ? colourOf(value) : unknown;
      if (ablated?.has(site)) {
        const stripe = ((n % width) + Math.floor(n / width)) % 8;
        if (stripe < 4) pixels[n] = stripe < 2 ? 0xff303030 : 0xfff0f0f0;
      }
    }
    for (const { window, level, colour } of outlines ?? []) {
      const sides = Uint8Array.from(window, (value, site) => (known[site] ? (value > level ? 1 : 0) : 2));
      outline(pixels, sites, width, height, sides, imageWord(colour));
    }
    const buffer = new OffscreenCanvas(width, height);
    buffer.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(buffer, frame.x, frame.y, frame.width, frame.height);
    context.strokeStyle = themeColour("line");
    context.strokeRect(frame.x - 0.5, frame.y - 0.5, frame.width + 1, frame.height + 1);
  }

  drawAxes(context, frame) {
    const { geometry, box } = this.content;
    const [across, up] = geometry.plane;
    context.fillStyle = themeColour("text");
    context.strokeStyle = themeColour("line");
    context.textAlign = "center";
    context.textBaseline = "top";
    const bottom = frame.y + frame.height;
    for (const at of ticks(box.left, box.right, frame.width / 80)) {
      const [x] = this.toPixel(at, box.bottom);
      line(context, x, bottom, x, bottom + 4);
      context.fillText(short(at), x, bottom + 6);
    }
    context.fillText(geometry.label(across), frame.x + frame.width / 2, bottom + 20);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const ends = up === undefined ? this.content.scale.limits : [box.bottom, box.top];
    for (const at of ticks(...ends, Math.max(3, frame.height / 50))) {
      const y = frame.y + ((ends[1] - at) / (ends[1] - ends[0])) * frame.height;
      line(context, frame.x - 4, y, frame.x, y);
      context.fillText(short(at), frame.x - 6, y);
    }
    context.save();
    context.translate(10, frame.y + frame.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(up === undefined ? this.content.units : geometry.label(up), 0, 0);
    context.restore();
  }

  drawBar(context, frame, scale, units) {
    drawColourBar(context, scale, units, {
      x: frame.x + frame.width + 10, y: frame.y + 18, width: 12, height: Math.max(30, frame.height - 22),
    });
  }

  drawCurves(context, frame) {
    const { geometry, values, scale, curves } = this.content;
    const order = Array.from(geometry.known.keys()).sort(
      (a, b) => geometry.positions[a] - geometry.positions[b],
    );
    const [low, high] = scale.limits;
    const all = [...(curves ?? []), { values, colour: themeColour("curve"), width: 2 }];
    context.strokeStyle = themeColour("line");
    context.strokeRect(frame.x - 0.5, frame.y - 0.5, frame.width + 1, frame.height + 1);
    context.save();
    context.beginPath();
    context.rect(frame.x, frame.y, frame.width, frame.height);
    context.clip();
    for (const { values: heights, colour, width, dash } of all) {
      context.strokeStyle = colour;
      context.lineWidth = width ?? 1.5;
      context.setLineDash(dash ?? []);
      context.beginPath();
      let isDown = false;
      for (const site of order) {
        const isKnown = geometry.known[site] && Number.isFinite(heights[site]);
        const [x] = this.toPixel(geometry.positions[site], 0);
        const y = frame.y + ((high - heights[site]) / (high - low)) * frame.height;
        if (isKnown && isDown) context.lineTo(x, y);
        else if (isKnown) context.moveTo(x, y);
        isDown = Boolean(isKnown);
      }
      context.stroke();
    }
    context.restore();
  }
}

export function drawColourBar(context, scale, units, { x, y, width, height }) {
  const [low, high] = scale.limits;
  const { palette } = scale;
  const image = new ImageData(1, palette.length);
  new Uint32Array(image.data.buffer).set(palette.toReversed());
  const buffer = new OffscreenCanvas(1, palette.length);
  buffer.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(buffer, x, y, width, height);
  context.fillStyle = themeColour("text");
  context.strokeStyle = themeColour("line");
  context.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const at of ticks(low, high, Math.max(height > 60 ? 4 : 2, height / 35))) {
    const row = y + ((high - at) / (high - low)) * height;
    line(context, x + width, row, x + width + 3, row);
    context.fillText(short(at), x + width + 6, row);
  }
  context.textBaseline = "alphabetic";
  context.fillText(units, x, y - 9);
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

// Marks the pixels where a window passes a level, with a dark rim so that any colour shows.
// sides: of every site, whether it is above (1), below (0), or not shown (2).
function outline(pixels, sites, width, height, sides, colour) {
  const edge = [];
  for (let row = 0; row < height - 1; row++) {
    for (let n = row * width; n < (row + 1) * width - 1; n++) {
      const here = sites[n];
      const right = sites[n + 1];
      const below = sites[n + width];
      if (here < 0 || sides[here] === 2) continue;
      const passes = (right >= 0 && sides[right] + sides[here] === 1) || (below >= 0 && sides[below] + sides[here] === 1);
      if (passes) edge.push(n);
    }
  }
  for (const n of edge) {
    if (sites[n + width + 2] >= 0) pixels[n + width + 2] = 0xff202020;
    if (n > width && sites[n - width - 1] >= 0) pixels[n - width - 1] = 0xff202020;
  }
  for (const n of edge) pixels[n] = pixels[n + 1] = pixels[n + width] = colour;
}
