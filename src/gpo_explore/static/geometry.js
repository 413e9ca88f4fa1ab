// Drawn coordinates of the sites, and the site that each pixel of a picture shows.

import { format, ticks } from "./colours.js";
import { Nearest } from "./nearest.js";

// Bounds the length of eastward vectors near the poles, where degrees of longitude are short.
const MIN_COSINE = 0.2;

export class Geometry {
  constructor({ metadata, arrays }) {
    Object.assign(this, metadata);
    this.numAxes = metadata.names.length;
    this.positions = arrays.positions.data;
    this.active = arrays.known.data;
    this.numSites = this.active.length;
    this.axes = [0, 1, 2].map((axis) => arrays[`axis${axis}`]?.data).filter(Boolean);
    this.cells = arrays.cells?.data;
    this.coords = arrays.coords?.data;
    this.slice = { axis: this.numAxes - 1, at: 0 };
    if (this.kind === "points") this.nearest = this.makeNearest();
    if (this.numAxes === 3) this.setSlice(2, 0.5);
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

  // Selects the slice of a three-dimensional field: perpendicular to an axis, at a fraction of its length.
  setSlice(axis, fraction) {
    const low = this.lower[axis];
    this.slice = { axis, at: low + fraction * (this.upper[axis] - low), fraction };
  }

  // The horizontal and the vertical axis of the picture; only the former in one dimension.
  get plane() {
    const all = Array.from({ length: this.numAxes }, (_, axis) => axis);
    return this.numAxes < 3 ? all : all.filter((axis) => axis !== this.slice.axis);
  }

  label(axis) {
    const units = this.units[axis];
    return units ? `${this.names[axis]} (${units})` : this.names[axis];
  }

  // The ratio of a degree of longitude to one of latitude on the screen; 1 on a map of the whole globe.
  get stretch() {
    if (!this.is_sphere || this.upper[1] - this.lower[1] > 120) return 1;
    return Math.max(0.3, Math.cos((((this.lower[1] + this.upper[1]) / 2) * Math.PI) / 180));
  }

  // Returns the factor from eastward degrees of arc to degrees of longitude.
  eastward(latitude) {
    return this.is_sphere ? 1 / Math.max(MIN_COSINE, Math.cos((latitude * Math.PI) / 180)) : 1;
  }

  // The text of the slice; "" in fewer than three dimensions.
  get sliceText() {
    if (this.numAxes < 3) return "";
    const { axis, at } = this.slice;
    return `${this.names[axis]} = ${format(at)}${this.units[axis] ? ` ${this.units[axis]}` : ""}`;
  }

  // Returns the period of a drawn axis; 0 if it is not periodic.
  periodOf(drawn) {
    if (this.is_sphere) return drawn === 0 && this.upper[0] - this.lower[0] > 359 ? 360 : 0;
    return this.periodic[drawn] ? this.domain_upper[drawn] - this.domain_lower[drawn] : 0;
  }

  // Returns the first site of a grid's slice.
  sliceStart() {
    return this.numAxes === 3 ? this.nearestOffsets(this.slice.axis, this.slice.at, this.slice.at, 1)[0] : 0;
  }

  // Returns a tick label.
  tick(axis, at) {
    if (!this.is_sphere) return format(at);
    const degrees = axis === 0 ? ((((at + 180) % 360) + 360) % 360) - 180 : at;
    const side = degrees === 0 || degrees === -180 ? "" : axis === 0 ? (degrees > 0 ? "E" : "W") : degrees > 0 ? "N" : "S";
    return `${format(Math.abs(degrees))}°${side}`;
  }

  // Returns round coordinates along an axis; on a map, customary numbers of degrees.
  ticks(low, high, count) {
    const isWide = this.is_sphere && high - low > 10;
    return isWide ? ticks(low, high, count, [1, 2, 5, 10, 15, 30, 45, 60, 90, 180]) : ticks(low, high, count);
  }

  // Returns the initial box of the view: the whole plane, or where most sites of a mesh are.
  homeBox() {
    const [across, up] = this.plane;
    const box = { left: this.home[0][across], right: this.home[1][across] };
    box.bottom = up === undefined ? 0 : this.home[0][up];
    box.top = up === undefined ? 1 : this.home[1][up];
    return box;
  }

  // Returns the drawn coordinates of a position in the plane.
  point(x, y) {
    const [across, up] = this.plane;
    const point = Array(this.numAxes).fill(this.slice.at);
    point[across] = x;
    if (up !== undefined) point[up] = y;
    return point;
  }

  // Returns the site of every pixel, in rows from the top; -1 outside the sites.
  raster(box, width, height) {
    if (this.kind === "axes") return this.rasterAxes(box, width, height);
    if (this.kind === "cells") return this.rasterCells(box, width, height);
    return this.rasterPoints(box, width, height);
  }

  siteAt(x, y) {
    const size = 1e-9;
    const box = { left: x - size, right: x + size, bottom: y - size, top: y + size };
    if (this.kind !== "cells") return this.raster(box, 1, 1)[0];
    const half = 1e-6 * (this.upper[0] - this.lower[0]);
    return this.rasterCells({ left: x - half, right: x + half, bottom: y - half, top: y + half }, 1, 1)[0];
  }

  rasterAxes(box, width, height) {
    const [across, up] = this.plane;
    const columns = this.nearestOffsets(across, box.left, box.right, width);
    const rows = up === undefined ? [0] : this.nearestOffsets(up, box.top, box.bottom, height);
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

  // Returns {order, coords, stride} of a drawn axis: its grid indices by increasing coordinate, the
  // coordinates, and the distance in sites between adjacent indices.
  gridAxis(drawn) {
    const fileAxis = this.file_axes[drawn];
    const axis = this.axes[fileAxis];
    const order = Array.from(axis.keys()).sort((a, b) => axis[a] - axis[b]);
    return { order, coords: order.map((n) => axis[n]), stride: this.shape.slice(fileAxis + 1).reduce((product, size) => product * size, 1) };
  }

  // Returns the grid index nearest to each of `count` coordinates along a drawn axis, times its stride; -1 outside.
  nearestOffsets(drawn, first, last, count) {
    const { order, coords, stride } = this.gridAxis(drawn);
    const edges = coords.slice(1).map((x, n) => (coords[n] + x) / 2);
    const offsets = new Int32Array(count);
    for (let n = 0; n < count; n++) {
      const at = first + ((n + 0.5) / count) * (last - first);
      if (at < this.lower[drawn] || at > this.upper[drawn]) {
        offsets[n] = -1;
        continue;
      }
      let low = 0;
      let high = edges.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (edges[middle] < at) low = middle + 1;
        else high = middle;
      }
      offsets[n] = order[low] * stride;
    }
    return offsets;
  }

  // Fills every triangle; each pixel shows the corner with the largest barycentric coordinate.
  rasterCells(box, width, height) {
    const sites = new Int32Array(width * height).fill(-1);
    this.eachCellPixel(box, width, height, (n, corners, a, b, c) => {
      sites[n] = corners[a >= b && a >= c ? 0 : b >= c ? 1 : 2];
    });
    return sites;
  }

  // Calls visit(pixel, corners, a, b, c) for the pixels of every triangle, with barycentric coordinates.
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
    const { maxDistance } = this.nearest;
    const [across, up] = this.plane;
    const point = this.point(0, 0);
    let last = -1;
    for (let row = 0; row < height; row++) {
      point[up] = box.top + ((row + 0.5) / height) * (box.bottom - box.top);
      for (let column = 0; column < width; column++) {
        point[across] = box.left + ((column + 0.5) / width) * (box.right - box.left);
        last = this.nearest.find(this.embedded(point), { maxDistance, guess: last });
        sites[row * width + column] = last;
      }
    }
    return sites;
  }

  // Returns the coordinates for distances: unit vectors on the sphere, else the point itself.
  embedded(point) {
    if (!this.is_sphere) return point;
    const [along, up] = point.map((degrees) => (degrees * Math.PI) / 180);
    return [Math.cos(up) * Math.cos(along), Math.cos(up) * Math.sin(along), Math.sin(up)];
  }
}
