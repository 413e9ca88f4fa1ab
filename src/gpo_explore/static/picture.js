// A field on a canvas: coloured pixels with axes and a colour bar, or curves in one dimension.

import { drawColourBar, drawHorizontalBar, line } from "./colourbar.js";
import { format, painter, ticks } from "./colours.js";
import { contour } from "./contours.js";
import { sampler } from "./interpolation.js";

const BARE = { left: 4, right: 78, top: 4, bottom: 4, hasLeft: false, hasBottom: false, isBelow: false };
const FULL = { left: 52, right: 78, top: 8, bottom: 36, hasLeft: true, hasBottom: true, isBelow: false };

export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function packedColour(cssColour) {
  const number = parseInt(cssColour.slice(1), 16);
  return (255 << 24) | ((number & 255) << 16) | (number & 0xff00) | (number >> 16);
}

// Resizes a canvas to its size on the page and clears it; returns its context, in CSS pixels.
export function prepareCanvas(canvas) {
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

export class Picture {
  // A bare picture has no axes.
  constructor(canvas, { isBare = false } = {}) {
    this.canvas = canvas;
    this.isBare = isBare;
    this.margin = null;
    this.cached = { key: "", sites: null };
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // content: {geometry, box, values, scale, units, isSmooth, outlines, ablated, curves, over}
  show(content) {
    this.content = content;
    this.redraw();
  }

  redraw() {
    if (!this.content || !this.canvas.clientWidth) return;
    const { geometry, box } = this.content;
    const isCurve = geometry.numAxes === 1;
    const margin = this.margin ?? (this.isBare && !isCurve ? BARE : FULL);
    const size = prepareCanvas(this.canvas);
    this.size = size;
    const { left, right, top, bottom } = margin;
    const frame = { x: left, y: top, width: size.width - left - right, height: size.height - top - bottom };
    if (!isCurve) this.keepAspect(frame, box);
    this.frame = frame;
    const { context } = size;
    if (isCurve) this.drawCurves(context, frame);
    else {
      this.drawCells(context, frame);
      this.drawBar(context, frame, margin);
    }
    this.drawAxes(context, frame, margin);
    context.save();
    context.beginPath();
    context.rect(frame.x, frame.y, frame.width, frame.height);
    context.clip();
    if (!isCurve) this.drawOutlines(context);
    this.content.over?.(context, this);
    context.restore();
  }

  // Draws both axes to the same scale, unless the box is very elongated.
  keepAspect(frame, box) {
    const ratio = ((box.right - box.left) / (box.top - box.bottom)) * this.content.geometry.stretch;
    if (ratio > 6 || ratio < 1 / 6) return;
    const width = Math.min(frame.width, frame.height * ratio);
    frame.width = width;
    frame.height = width / ratio;
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

  // Returns the nearest site of every pixel; cached until the view changes.
  sites(width, height) {
    const { geometry, box } = this.content;
    const key = JSON.stringify([box, width, height, geometry.slice]);
    if (this.cached.key !== key || this.cached.geometry !== geometry) {
      this.cached = { key, geometry, sites: geometry.raster(box, width, height), sampler: null };
    }
    return this.cached.sites;
  }

  interpolate(values, width, height) {
    const { geometry, box } = this.content;
    const sites = this.sites(width, height);
    this.cached.sampler ??= sampler(geometry, sites, box, width, height);
    return this.cached.sampler(values);
  }

  drawCells(context, frame) {
    const { geometry } = this.content;
    // Nearest-neighbour search is slower than lookup on a grid.
    const density = geometry.kind === "points" ? 0.5 : this.size.ratio;
    const width = Math.max(1, Math.round(frame.width * density));
    const height = Math.max(1, Math.round(frame.height * density));
    context.imageSmoothingEnabled = false;
    context.drawImage(this.pixelImage(width, height), frame.x, frame.y, frame.width, frame.height);
    context.strokeStyle = themeColour("line");
    context.strokeRect(frame.x - 0.5, frame.y - 0.5, frame.width + 1, frame.height + 1);
  }

  // Returns the coloured pixels as an image; cached until values, colours or view change.
  pixelImage(width, height) {
    const { values, scale, ablated, isSmooth, geometry } = this.content;
    const sites = this.sites(width, height);
    const missing = themeColour("unknown");
    const key = [values, ablated, isSmooth, sites, missing, scale.palette, ...scale.limits];
    if (this.image && key.every((part, n) => part === this.image.key[n])) return this.image.buffer;
    const image = new ImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const [colourOf, grey] = [painter(scale), packedColour(missing)];
    const smooth = isSmooth ? this.interpolate(values, width, height) : null;
    for (let n = 0; n < pixels.length; n++) {
      const site = sites[n];
      if (site < 0) continue;
      const value = smooth ? smooth[n] : values[site];
      pixels[n] = geometry.active[site] && Number.isFinite(value) ? colourOf(value) : grey;
      if (ablated?.has(site)) {
        const stripe = ((n % width) + Math.floor(n / width)) % 8;
        if (stripe < 4) pixels[n] = stripe < 2 ? 0xff303030 : 0xfff0f0f0;
      }
    }
    const buffer = new OffscreenCanvas(width, height);
    buffer.getContext("2d").putImageData(image, 0, 0);
    this.image = { key, buffer };
    return buffer;
  }

  // Draws contour lines of windows, with a dark outline so that they are visible on any colour.
  drawOutlines(context) {
    const { outlines, box, geometry } = this.content;
    context.lineCap = context.lineJoin = "round";
    for (const { window, level, colour } of outlines ?? []) {
      const key = JSON.stringify([box, this.frame, geometry.slice, level]);
      this.paths ??= new Map();
      const cached = this.paths.get(window);
      const path = cached?.key === key ? cached.path : contour(this, window, level);
      if (cached?.key !== key) this.paths = new Map([...this.paths, [window, { key, path }]].slice(-4));
      for (const [width, stroke] of [[5, "#202020c0"], [2.8, colour]]) {
        context.lineWidth = width;
        context.strokeStyle = stroke;
        context.stroke(path);
      }
    }
    context.lineWidth = 1;
    context.lineCap = "butt";
  }

  drawAxes(context, frame, { hasLeft, hasBottom }) {
    const { geometry, box } = this.content;
    const [across, up] = geometry.plane;
    context.fillStyle = themeColour("text");
    context.strokeStyle = themeColour("line");
    context.textAlign = "center";
    context.textBaseline = "top";
    const bottom = frame.y + frame.height;
    if (hasBottom) {
      for (const at of geometry.ticks(box.left, box.right, frame.width / 80)) {
        const [x] = this.toPixel(at, box.bottom);
        line(context, x, bottom, x, bottom + 4);
        const text = geometry.tick(across, at);
        const half = context.measureText(text).width / 2;
        context.fillText(text, Math.min(Math.max(x, half + 1), this.size.width - half - 1), bottom + 6);
      }
      if (!geometry.is_sphere) context.fillText(geometry.label(across), frame.x + frame.width / 2, bottom + 20);
    }
    if (!hasLeft) return;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const limits = up === undefined ? this.content.scale.limits : [box.bottom, box.top];
    const count = Math.max(4, frame.height / 50);
    for (const at of up === undefined ? ticks(...limits, count) : geometry.ticks(...limits, count)) {
      const y = frame.y + ((limits[1] - at) / (limits[1] - limits[0])) * frame.height;
      line(context, frame.x - 4, y, frame.x, y);
      context.fillText(up === undefined ? format(at) : geometry.tick(up, at), frame.x - 6, y);
    }
    if (geometry.is_sphere) return;
    context.save();
    context.translate(9, frame.y + frame.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(up === undefined ? this.content.units : geometry.label(up), 0, 0);
    context.restore();
  }

  drawBar(context, frame, { hasBottom, isBelow }) {
    const { scale, units } = this.content;
    const bottom = frame.y + frame.height;
    if (isBelow) {
      const y = bottom + (hasBottom ? (this.content.geometry.is_sphere ? 26 : 38) : 8);
      drawHorizontalBar(context, scale, units, { x: frame.x, y, width: frame.width, height: 10 });
      return;
    }
    drawColourBar(context, scale, units, {
      x: frame.x + frame.width + 10, y: frame.y + 18, width: 12, height: Math.max(30, frame.height - 22),
    });
  }

  drawCurves(context, frame) {
    const { geometry, values, scale, curves } = this.content;
    const order = Array.from(geometry.active.keys()).sort(
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
        const isActive = geometry.active[site] && Number.isFinite(heights[site]);
        const [x] = this.toPixel(geometry.positions[site], 0);
        const y = frame.y + ((high - heights[site]) / (high - low)) * frame.height;
        if (isActive && isDown) context.lineTo(x, y);
        else if (isActive) context.moveTo(x, y);
        isDown = Boolean(isActive);
      }
      context.stroke();
    }
    context.restore();
  }
}
