// One picture of the flow: a field in quiet colours, streaks over it, and tracers over both.

import { FieldView } from "./field.js";
import { imageWord, themeColour } from "./picture.js";
import { Streaks } from "./streaks.js";
import { element } from "./store.js";
import { drawTracer, waysOf } from "./tracerpaths.js";
import { VectorRaster } from "./vectors.js";

const QUIET = 0.52;
const STILL = 4;

// Returns a palette mixed with the colour of the page, so that streaks are seen everywhere on it.
const mixed = new Map();
function quiet(palette) {
  const paper = imageWord(themeColour("panel"));
  if (mixed.get(palette)?.paper !== paper) {
    const part = (word, shift) => (word >> shift) & 255;
    const mix = (word) => [0, 8, 16].reduce(
      (sum, shift) => sum | (Math.round(part(word, shift) + QUIET * (part(paper, shift) - part(word, shift))) << shift), 255 << 24);
    mixed.set(palette, { paper, table: Uint32Array.from(palette, mix) });
  }
  return mixed.get(palette).table;
}

// A picture on which a click, or Enter at the cross, drops a tracer.
export class FlowView extends FieldView {
  // on: {drop(point), hover(place, view), key(name)}: the last says whether it knew the key.
  constructor(canvas, store, on) {
    super(canvas, store, on);
    canvas.addEventListener("click", ({ offsetX, offsetY }) => {
      if (this.picture.frame && this.picture.isInside(offsetX, offsetY)) this.use(this.picture.toPlane(offsetX, offsetY));
    });
  }

  // A finger that scrolls goes down too; only what was a click drops something.
  onDown() {}

  onKey(event) {
    if (this.on.key(event.key)) event.preventDefault();
    else super.onKey(event);
  }

  use([x, y]) {
    this.on.drop(this.geometry.point(x, y));
  }
}

export class FlowSide {
  constructor(store, id, on) {
    this.store = store;
    this.view = new FlowView(element(id), store, on);
    this.caption = element(`${id}-caption`);
    this.sheet = element(`${id}-streaks`);
    this.streaks = new Streaks();
    this.paths = [];
  }

  get picture() {
    return this.view.picture;
  }

  // vectors: sites by axes, in drawn lengths per step.
  show(content, vectors) {
    this.vectors = vectors;
    const scale = { ...content.scale, palette: quiet(content.scale.palette) };
    this.view.show({ ...content, scale, over: (context, picture) => {
      content.over?.(context, picture);
      this.follow(picture);
    } });
  }

  // Lays the sheet of streaks over the frame, and makes the raster of vectors where it is another.
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
    if (this.isFresh) this.streaks.settle(pace);
    this.isFresh = false;
    this.streaks.advance(seconds, pace);
  }

  // tracers: {path, colour, isOther}, the last on top; time in frames.
  paint(tracers, time, colour) {
    if (!this.raster) return;
    const context = this.sheet.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.raster.width, this.raster.height);
    this.streaks.draw(context, colour);
    const { geometry } = this.picture.content;
    for (const { path, ...how } of tracers) {
      for (const way of waysOf(path, geometry)) drawTracer(context, this.picture, way, time, how);
    }
  }
}

// Returns at how many steps per second a field is streamed, and how much faster than another it is
// then: both have one clock unless one of them would stand still or race.
export function paces(mine, others, perSecond) {
  const usual = perSecond / Math.max(mine.size, 1e-9);
  if (!others) return [usual, usual, 1];
  const ratio = mine.size / Math.max(others.size, 1e-9);
  const factor = ratio > STILL || ratio < 1 / STILL ? ratio : 1;
  return [usual, usual * factor, factor];
}
