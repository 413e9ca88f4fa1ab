// An interactive picture: zoom and pan, a crosshair that keys move, and tools that query or mask sites.

import { format } from "./colours.js";
import { Picture, themeColour } from "./picture.js";

const STEP = 0.04;

export class FieldView {
  // on: {query(point), mask(sites, isOff), hover(position, view)}
  constructor(canvas, store, on) {
    this.canvas = canvas;
    this.store = store;
    this.on = on;
    this.picture = new Picture(canvas);
    this.cross = null;
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", () => (this.drag = null));
    canvas.addEventListener("pointerleave", () => this.on.hover(null, this));
    canvas.addEventListener("dblclick", () => this.home());
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("focus", () => this.picture.redraw());
    canvas.addEventListener("blur", () => this.picture.redraw());
  }

  get geometry() {
    return this.store.geometry;
  }

  home() {
    this.store.set({ box: this.geometry.homeBox() });
  }

  show(content) {
    const over = content.over;
    this.picture.show({ ...content, over: (context) => {
      over?.(context, this.picture);
      this.drawMarks(context);
    } });
  }

  drawMarks(context) {
    const { point } = this.store;
    if (point) this.drawCross(context, this.planeOf(point), "#111111", 9);
    if (this.marked) this.drawRing(context, this.marked);
    if (this.cross && document.activeElement === this.canvas) {
      this.drawCross(context, this.cross, themeColour("focus"), 7);
    }
  }

  planeOf(point) {
    const [across, up] = this.geometry.plane;
    return [point[across], up === undefined ? 0.5 : point[up]];
  }

  drawCross(context, [x, y], colour, size) {
    const [px, py] = this.picture.toPixel(x, y);
    for (const [width, stroke] of [[5, "#ffffff"], [2, colour]]) {
      context.lineWidth = width;
      context.strokeStyle = stroke;
      context.beginPath();
      context.moveTo(px - size, py);
      context.lineTo(px + size, py);
      context.moveTo(px, py - size);
      context.lineTo(px, py + size);
      context.stroke();
    }
    context.lineWidth = 1;
  }

  // Marks the position of the pointer in another picture.
  mark(position) {
    if (this.marked === position) return;
    this.marked = position;
    this.redrawRequest ??= requestAnimationFrame(() => {
      this.redrawRequest = null;
      this.picture.redraw();
    });
  }

  drawRing(context, [x, y]) {
    const [px, py] = this.picture.toPixel(x, y);
    for (const [width, stroke] of [[3.5, "#ffffffc0"], [1.5, "#111111"]]) {
      context.lineWidth = width;
      context.strokeStyle = stroke;
      context.beginPath();
      context.arc(px, py, 5, 0, 2 * Math.PI);
      context.stroke();
    }
    context.lineWidth = 1;
  }

  zoom(factor, center) {
    const { box } = this.store;
    const [x, y] = center ?? [(box.left + box.right) / 2, (box.bottom + box.top) / 2];
    const scaled = (end, middle) => middle + (end - middle) * factor;
    const next = { left: scaled(box.left, x), right: scaled(box.right, x), bottom: box.bottom, top: box.top };
    if (this.geometry.numAxes > 1) {
      next.bottom = scaled(box.bottom, y);
      next.top = scaled(box.top, y);
    }
    this.store.set({ box: this.bounded(next) });
  }

  // Moves a box inside the drawn domain; a larger box becomes the whole domain.
  bounded(box) {
    const [across, up] = this.geometry.plane;
    const fit = (low, high, axis) => {
      if (axis === undefined) return [low, high];
      const [lower, upper] = [this.geometry.lower[axis], this.geometry.upper[axis]];
      if (high - low >= upper - lower) return [lower, upper];
      const shift = Math.max(0, lower - low) + Math.min(0, upper - high);
      return [low + shift, high + shift];
    };
    const [left, right] = fit(box.left, box.right, across);
    const [bottom, top] = fit(box.bottom, box.top, up);
    return { left, right, bottom, top };
  }

  move(right, up) {
    const { box } = this.store;
    const vertical = this.geometry.numAxes > 1 ? up : 0;
    this.store.set({ box: this.bounded({
      left: box.left + right, right: box.right + right, bottom: box.bottom + vertical, top: box.top + vertical,
    }) });
  }

  onWheel(event) {
    if (!this.picture.frame || !this.picture.isInside(event.offsetX, event.offsetY)) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.picture.toPlane(event.offsetX, event.offsetY));
  }

  onDown(event) {
    if (!this.picture.frame || !this.picture.isInside(event.offsetX, event.offsetY)) return;
    const position = this.picture.toPlane(event.offsetX, event.offsetY);
    this.cross = position;
    this.drag = { x: event.offsetX, y: event.offsetY };
    this.canvas.setPointerCapture(event.pointerId);
    if (this.store.tool !== "look") this.applyTool(position, event.shiftKey);
  }

  onMove(event) {
    if (!this.picture.frame) return;
    const isInside = this.picture.isInside(event.offsetX, event.offsetY);
    const position = this.picture.toPlane(event.offsetX, event.offsetY);
    this.on.hover(isInside ? position : null, this);
    if (!this.drag || !isInside) return;
    if (this.store.tool === "paint") this.applyTool(position, event.shiftKey);
    if (this.store.tool !== "look") return;
    const before = this.picture.toPlane(this.drag.x, this.drag.y);
    this.drag = { x: event.offsetX, y: event.offsetY };
    this.move(before[0] - position[0], before[1] - position[1]);
  }

  onKey(event) {
    const { box } = this.store;
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const size = [STEP * (box.right - box.left), STEP * (box.top - box.bottom)];
    if (event.key in steps) {
      const [right, up] = steps[event.key];
      if (this.store.tool === "look") this.move(right * size[0], up * size[1]);
      else {
        const [x, y] = this.cross ?? [(box.left + box.right) / 2, (box.bottom + box.top) / 2];
        this.cross = [x + right * size[0], y + up * size[1]];
        this.on.hover(this.cross, this);
        this.picture.redraw();
      }
    } else if (event.key === "Enter" || event.key === " ") {
      if (this.cross) this.applyTool(this.cross, event.shiftKey);
    } else if (event.key === "+" || event.key === "=") this.zoom(1 / 1.2, this.cross);
    else if (event.key === "-") this.zoom(1.2, this.cross);
    else if (event.key === "0") this.home();
    else return;
    event.preventDefault();
  }

  applyTool([x, y], isErasing) {
    if (this.store.tool === "ask") this.on.query(this.geometry.point(x, y));
    if (this.store.tool === "paint") this.on.mask(this.sitesInBrush(x, y), !isErasing);
  }

  // Returns the active sites within the brush; its size is in percent of the width of the picture.
  sitesInBrush(x, y) {
    const { box, brush } = this.store;
    const { geometry } = this;
    const [across, up] = geometry.plane;
    const radius = (brush / 100) * (box.right - box.left);
    const sites = [];
    for (let site = 0; site < geometry.numSites; site++) {
      const position = (axis) => geometry.positions[site * geometry.numAxes + axis];
      const right = position(across) - x;
      const above = up === undefined ? 0 : position(up) - y;
      if (right * right + above * above > radius * radius || !geometry.active[site]) continue;
      if (geometry.numAxes === 3) {
        const depth = Math.abs(position(geometry.slice.axis) - geometry.slice.at);
        if (depth > radius) continue;
      }
      sites.push(site);
    }
    return sites;
  }

  // Returns the text of a position.
  describe(position) {
    const { geometry } = this;
    if (geometry.is_sphere) return `${geometry.tick(1, position[1])} ${geometry.tick(0, position[0])}`;
    return geometry.plane.map((axis, n) => `${geometry.names[axis]} ${format(position[n])}`).join(", ");
  }
}
