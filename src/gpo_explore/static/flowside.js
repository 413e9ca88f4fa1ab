// One picture of the flow panel: a field in muted colours, streaks over it, and tracers over both.

import { FieldView } from "./field.js";
import { packedColour, themeColour } from "./picture.js";
import { Streaks } from "./streaks.js";
import { element } from "./store.js";
import { curvesOf, drawTracer } from "./tracerpaths.js";
import { VectorRaster } from "./vectors.js";

const MUTING = 0.52;
const MAX_SPEED_RATIO = 4;

// Returns a palette mixed with the background colour, so that streaks are visible on all its colours.
const mixed = new Map();
function muted(palette) {
  const background = packedColour(themeColour("panel"));
  if (mixed.get(palette)?.background !== background) {
    const channel = (colour, shift) => (colour >> shift) & 255;
    const mix = (colour) => [0, 8, 16].reduce(
      (sum, shift) => sum | (Math.round(channel(colour, shift) + MUTING * (channel(background, shift) - channel(colour, shift))) << shift), 255 << 24);
    mixed.set(palette, { background, table: Uint32Array.from(palette, mix) });
  }
  return mixed.get(palette).table;
}

// A picture on which a click, or Enter at the crosshair, adds a tracer.
class FlowView extends FieldView {
  // on: {query(point), hover(position, view), key(name)}; key returns whether it handled the key.
  constructor(canvas, store, on) {
    super(canvas, store, on);
    canvas.addEventListener("click", ({ offsetX, offsetY }) => {
      if (this.picture.frame && this.picture.isInside(offsetX, offsetY)) this.applyTool(this.picture.toPlane(offsetX, offsetY));
    });
  }

  // Ignored, because touches that scroll the page also begin with it; tracers are added by clicks.
  onDown() {}

  onKey(event) {
    if (this.on.key(event.key)) event.preventDefault();
    else super.onKey(event);
  }

  applyTool([x, y]) {
    this.on.query(this.geometry.point(x, y));
  }
}

export class FlowSide {
  constructor(store, id, on) {
    this.store = store;
    this.view = new FlowView(element(id), store, on);
    this.caption = element(`${id}-caption`);
    this.sheet = element(`${id}-streaks`);
    this.streaks = new Streaks();
  }

  get picture() {
    return this.view.picture;
  }

  // vectors: sites by axes, in drawn lengths per step.
  show(content, vectors) {
    this.vectors = vectors;
    const scale = { ...content.scale, palette: muted(content.scale.palette) };
    this.view.show({ ...content, scale, over: (context, picture) => {
      content.over?.(context, picture);
      this.follow(picture);
    } });
  }

  // Aligns the canvas of the streaks with the frame, and updates the raster of vectors.
  follow(picture) {
    const { frame, canvas, content } = picture;
    const key = JSON.stringify([content.box, frame, content.geometry.slice, canvas.offsetLeft, canvas.offsetTop]);
    if (key === this.key && this.raster?.vectors === this.vectors && this.raster.geometry === content.geometry) return;
    this.key = key;
    const { style } = this.sheet;
    Object.assign(style, {
      left: `${canvas.offsetLeft + frame.x}px`, top: `${canvas.offsetTop + frame.y}px`,
      width: `${frame.width}px`, height: `${frame.height}px`,
    });
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    [this.sheet.width, this.sheet.height] = [frame.width * ratio, frame.height * ratio].map(Math.round);
    this.ratio = ratio;
    this.raster = new VectorRaster(picture, this.vectors, this.raster);
    this.raster.vectors = this.vectors;
    const before = this.streaks.count && this.streaks.raster;
    this.streaks.follow(this.raster);
    if (!before || before.key !== this.raster.key) this.isFresh = true;
  }

  advance(seconds, pace) {
    if (this.isFresh) this.streaks.warmUp(pace);
    this.isFresh = false;
    this.streaks.advance(seconds, pace);
  }

  // tracers: {path, colour, isOther}, the last drawn on top; time in frames.
  paint(tracers, time, colour) {
    if (!this.raster) return;
    const context = this.sheet.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.raster.width, this.raster.height);
    this.streaks.draw(context, colour);
    const { geometry } = this.picture.content;
    for (const { path, ...style } of tracers) {
      for (const curve of curvesOf(path, geometry)) drawTracer(context, this.picture, curve, time, style);
    }
  }
}

// Returns the steps per second at which the learned motion and the true flow are shown, and their ratio:
// one, unless one of them would then be far too slow or too fast to see.
export function paces([learned, true_], pixelsPerSecond) {
  const pace = pixelsPerSecond / Math.max(learned.size, 1e-9);
  if (!true_) return [pace, pace, 1];
  const ratio = learned.size / Math.max(true_.size, 1e-9);
  const factor = ratio > MAX_SPEED_RATIO || ratio < 1 / MAX_SPEED_RATIO ? ratio : 1;
  return [pace, pace * factor, factor];
}
