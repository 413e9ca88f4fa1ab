// Where the sites are, and which of them every pixel of a picture shows.

import { short, ticks } from "./colours.js";
import { Nearest } from "./nearest.js";

// East is more degrees of longitude near the poles; close to them it would fill the map.
const LEAST_COSINE = 0.2;

export class Geometry {
  constructor({ metadata, arrays }) {
    Object.assign(this, metadata);
    this.numAxes = metadata.names.length;
    this.positions = arrays.positions.data;
    this.known = arrays.known.data;
    this.numSites = this.known.length;
    this.axes = [0, 1, 2].map((axis) => arrays[`axis${axis}`]?.data).filter(Boolean);
    this.cells = arrays.cells?.data;
    this.coords = arrays.coords?.data;
    this.slice = { axis: this.numAxes - 1, at: 0 };
    if (this.kind === "points") this.nearest = this.makeNearest();
    if (this.numAxes === 3) this.cut(2, 0.5);
  }

  makeNearest() {
    const dim = this.coords.length / this.numSites;
    const periods = Array.from({ length: dim }, (_, axis) =>
      !this.is_sphere && this.periodic[axis]
        ? this.domain_upper[axis] - this.domain_lower[axis]
        : 0,
    );
    return new Nearest(this.coords, dim, this.domain_lower, periods);
  }

  // Chooses the plane that is shown of three dimensions: `fraction` of the way along an axis.
  cut(axis, fraction) {
    const low = this.lower[axis];
    this.slice = { axis, at: low + fraction * (this.upper[axis] - low), fraction };
  }

  // The two drawn axes across and up; one where there is only one.
  get plane() {
    const all = Array.from({ length: this.numAxes }, (_, axis) => axis);
    return this.numAxes < 3 ? all : all.filter((axis) => axis !== this.slice.axis);
  }

  label(axis) {
    const units = this.units[axis];
    return units ? `${this.names[axis]} (${units})` : this.names[axis];
  }

  // How much longer a degree of latitude is drawn than one of longitude; a globe is drawn as it is.
  get stretch() {
    if (!this.is_sphere || this.upper[1] - this.lower[1] > 120) return 1;
    return Math.max(0.3, Math.cos((((this.lower[1] + this.upper[1]) / 2) * Math.PI) / 180));
  }

  // Returns by how much longer a way to the east is drawn than one to the north, on a map.
  eastward(latitude) {
    return this.is_sphere ? 1 / Math.max(LEAST_COSINE, Math.cos((latitude * Math.PI) / 180)) : 1;
  }

  // Where three dimensions are cut, in words; "" where all is seen.
  get sliceWords() {
    if (this.numAxes < 3) return "";
    const { axis, at } = this.slice;
    return `${this.names[axis]} = ${short(at)}${this.units[axis] ? ` ${this.units[axis]}` : ""}`;
  }

  // Returns the length after which a drawn axis begins again; 0 where it does not.
  periodOf(drawn) {
    if (this.is_sphere) return drawn === 0 && this.upper[0] - this.lower[0] > 359 ? 360 : 0;
    return this.periodic[drawn] ? this.domain_upper[drawn] - this.domain_lower[drawn] : 0;
  }

  // Returns the first site of the plane that is shown of a grid.
  sliceStart() {
    return this.numAxes === 3 ? this.lookUp(this.slice.axis, this.slice.at, this.slice.at, 1)[0] : 0;
  }

  // Returns a number on an axis in words.
  tick(axis, at) {
    if (!this.is_sphere) return short(at);
    const degrees = axis === 0 ? ((((at + 180) % 360) + 360) % 360) - 180 : at;
    const side = degrees === 0 || degrees === -180 ? "" : axis === 0 ? (degrees > 0 ? "E" : "W") : degrees > 0 ? "N" : "S";
    return `${short(Math.abs(degrees))}°${side}`;
  }

  // Returns round places along an axis; on a map those that degrees are counted by.
  ticks(low, high, most) {
    const isWide = this.is_sphere && high - low > 10;
    return isWide ? ticks(low, high, most, [1, 2, 5, 10, 15, 30, 45, 60, 90, 180]) : ticks(low, high, most);
  }

  // Returns the box that shows everything of the plane, or the focus box where most sites are.
  homeBox() {
    const [across, up] = this.plane;
    const box = { left: this.home[0][across], right: this.home[1][across] };
    box.bottom = up === undefined ? 0 : this.home[0][up];
    box.top = up === undefined ? 1 : this.home[1][up];
    return box;
  }

  // Returns a point of the drawn space from one of the plane.
  point(x, y) {
    const [across, up] = this.plane;
    const point = Array(this.numAxes).fill(this.slice.at);
    point[across] = x;
    if (up !== undefined) point[up] = y;
    return point;
  }

  // Returns the site of every pixel, rows from the top; -1 where there is none.
  raster(box, width, height) {
    if (this.kind === "axes") return this.rasterAxes(box, width, height);
    if (this.kind === "cells") return this.rasterCells(box, width, height);
    return this.rasterPoints(box, width, height);
  }

  siteAt(x, y) {
    const size = 1e-9;
    const box = { left: x - size, right: x + size, bottom: y - size, top: y + size };
    if (this.kind !== "cells") return this.raster(box, 1, 1)[0];
    const reach = 1e-6 * (this.upper[0] - this.lower[0]);
    return this.rasterCells({ left: x - reach, right: x + reach, bottom: y - reach, top: y + reach }, 1, 1)[0];
  }

  rasterAxes(box, width, height) {
    const [across, up] = this.plane;
    const columns = this.lookUp(across, box.left, box.right, width);
    const rows = up === undefined ? [0] : this.lookUp(up, box.top, box.bottom, height);
    const base = this.sliceStart();
    const sites = new Int32Array(width * height);
    for (let row = 0; row < height; row++) {
      const start = rows[Math.min(row, rows.length - 1)];
      for (let column = 0; column < width; column++) {
        const isOutside = start < 0 || columns[column] < 0 || base < 0;
        sites[row * width + column] = isOutside ? -1 : base + start + columns[column];
      }
    }
    return sites;
  }

  // Returns, for places along a drawn axis, the nearest line of the grid times its stride.
  lookUp(drawn, first, last, count) {
    const fileAxis = this.file_axes[drawn];
    const axis = this.axes[fileAxis];
    const stride = this.shape.slice(fileAxis + 1).reduce((product, size) => product * size, 1);
    const order = Array.from(axis.keys()).sort((a, b) => axis[a] - axis[b]);
    const edges = [];
    for (let n = 1; n < order.length; n++) edges.push((axis[order[n - 1]] + axis[order[n]]) / 2);
    const found = new Int32Array(count);
    for (let n = 0; n < count; n++) {
      const at = first + ((n + 0.5) / count) * (last - first);
      if (at < this.lower[drawn] || at > this.upper[drawn]) {
        found[n] = -1;
        continue;
      }
      let low = 0;
      let high = edges.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (edges[middle] < at) low = middle + 1;
        else high = middle;
      }
      found[n] = order[low] * stride;
    }
    return found;
  }

  // Fills every triangle; a pixel shows the nearest of its three corners.
  rasterCells(box, width, height) {
    const sites = new Int32Array(width * height).fill(-1);
    this.eachCellPixel(box, width, height, (n, corners, a, b, c) => {
      sites[n] = corners[a >= b && a >= c ? 0 : b >= c ? 1 : 2];
    });
    return sites;
  }

  // Visits the pixels of every triangle with its corners and how much the pixel is of each.
  eachCellPixel(box, width, height, visit) {
    const toX = width / (box.right - box.left);
    const toY = height / (box.top - box.bottom);
    const x = (site) => (this.positions[2 * site] - box.left) * toX;
    const y = (site) => (box.top - this.positions[2 * site + 1]) * toY;
    for (let n = 0; n < this.cells.length; n += 3) {
      const corners = [this.cells[n], this.cells[n + 1], this.cells[n + 2]];
      const xs = corners.map(x);
      const ys = corners.map(y);
      const left = Math.max(0, Math.ceil(Math.min(...xs) - 0.5));
      const right = Math.min(width - 1, Math.floor(Math.max(...xs) - 0.5));
      const top = Math.max(0, Math.ceil(Math.min(...ys) - 0.5));
      const bottom = Math.min(height - 1, Math.floor(Math.max(...ys) - 0.5));
      if (left > right || top > bottom) continue;
      const area = (xs[1] - xs[0]) * (ys[2] - ys[0]) - (xs[2] - xs[0]) * (ys[1] - ys[0]);
      if (area === 0) continue;
      for (let row = top; row <= bottom; row++) {
        for (let column = left; column <= right; column++) {
          const px = column + 0.5;
          const py = row + 0.5;
          const b = ((px - xs[0]) * (ys[2] - ys[0]) - (xs[2] - xs[0]) * (py - ys[0])) / area;
          const c = ((xs[1] - xs[0]) * (py - ys[0]) - (px - xs[0]) * (ys[1] - ys[0])) / area;
          const a = 1 - b - c;
          if (a < -1e-6 || b < -1e-6 || c < -1e-6) continue;
          visit(row * width + column, corners, a, b, c);
        }
      }
    }
  }

  rasterPoints(box, width, height) {
    const sites = new Int32Array(width * height);
    const { reach } = this.nearest;
    const [across, up] = this.plane;
    const point = this.point(0, 0);
    let last = -1;
    for (let row = 0; row < height; row++) {
      point[up] = box.top + ((row + 0.5) / height) * (box.bottom - box.top);
      for (let column = 0; column < width; column++) {
        point[across] = box.left + ((column + 0.5) / width) * (box.right - box.left);
        last = this.nearest.find(this.embedded(point), { within: reach, guess: last });
        sites[row * width + column] = last;
      }
    }
    return sites;
  }

  // Returns where distances are taken: unit vectors on the sphere, else the point itself.
  embedded(point) {
    if (!this.is_sphere) return point;
    const [along, up] = point.map((degrees) => (degrees * Math.PI) / 180);
    return [Math.cos(up) * Math.cos(along), Math.cos(up) * Math.sin(along), Math.sin(up)];
  }
}
