// A vector field on a coarse raster of a picture, in pixels per step, for the streaks.

import { sampler } from "./interpolation.js";
import { column } from "./store.js";

const CELL = 3;

export class VectorRaster {
  // vectors: sites by axes, in drawn lengths per step; previous: a raster whose sampler can be reused.
  constructor(picture, vectors, previous = null) {
    const { geometry, box } = picture.content;
    const { frame } = picture;
    this.width = frame.width;
    this.height = frame.height;
    this.columns = Math.max(1, Math.ceil(frame.width / CELL));
    this.rows = Math.max(1, Math.ceil(frame.height / CELL));
    this.key = JSON.stringify([box, frame, geometry.slice]);
    this.geometry = geometry;
    const isSame = previous?.key === this.key && previous.geometry === geometry;
    this.sample = isSame ? previous.sample : this.makeSampler(geometry, box);
    const [across, up] = geometry.plane;
    this.right = this.sample(column(vectors, across));
    this.down = this.sample(column(vectors, up));
    this.toPixels(geometry, box, frame);
    this.periodic = [across, up].map((axis, n) => {
      const extent = n ? box.top - box.bottom : box.right - box.left;
      const period = geometry.periodOf(axis);
      return period > 0 && extent > 0.999 * period;
    });
  }

  makeSampler(geometry, box) {
    const sites = geometry.raster(box, this.columns, this.rows);
    return sampler(geometry, sites, box, this.columns, this.rows);
  }

  toPixels(geometry, box, frame) {
    const toRight = frame.width / (box.right - box.left);
    const toDown = -frame.height / (box.top - box.bottom);
    const valid = [];
    let squares = 0;
    for (let n = 0; n < this.right.length; n++) {
      const latitude = box.top + ((Math.floor(n / this.columns) + 0.5) / this.rows) * (box.bottom - box.top);
      this.right[n] *= toRight * geometry.eastward(latitude);
      this.down[n] *= toDown;
      if (!Number.isFinite(this.right[n]) || !Number.isFinite(this.down[n])) continue;
      valid.push(n);
      squares += this.right[n] ** 2 + this.down[n] ** 2;
    }
    this.valid = Int32Array.from(valid);
    // RMS length, in pixels per step.
    this.size = Math.sqrt(squares / Math.max(1, valid.length));
  }

  // Returns the cell at a pixel; -1 outside.
  cellAt(x, y) {
    if (!(x >= 0 && y >= 0 && x < this.width && y < this.height)) return -1;
    const column = Math.min(this.columns - 1, Math.floor((x / this.width) * this.columns));
    return Math.min(this.rows - 1, Math.floor((y / this.height) * this.rows)) * this.columns + column;
  }
}
