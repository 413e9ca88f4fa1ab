// Gaussian particles, coloured by weight or by a layer: those of an encoder as ellipses with half axes
// of some sigma, those that move as arrows from their centers to their sites.

import { css, endsOf, SEQUENTIAL, short } from "./colours.js";

const MOST = 200;
const SIZES = [2, 1, 0.5, 0.15, 0.05];
const HEAD = 5;

export class ParticleCloud {
  constructor({ arrays }) {
    this.sites = arrays.sites.data;
    [this.count, this.numGaussians, this.dim] = arrays.centers.shape;
    this.centers = arrays.centers.data;
    this.scales = arrays.scales?.data;
    this.displacements = arrays.displacements?.data;
    this.weights = arrays.weights.data;
    this.states = arrays.states?.data;
    this.drawn = [];
    // A fixed shuffle: evenly spaced sites of a grid would draw stripes.
    this.order = Array.from({ length: this.count }, (_, n) => n).sort(
      (a, b) => ((a * 2654435761) >>> 0) - ((b * 2654435761) >>> 0),
    );
  }

  // Returns what every particle is coloured by: its weight, or what a layer made of it.
  colours(by, layer) {
    if (by === "weight" || !this.states) return this.weights;
    const size = this.count * this.numGaussians;
    return this.states.subarray(layer * size, (layer + 1) * size);
  }

  // Returns in how many sigma to draw, so that ellipses stay apart.
  suitableSize(geometry) {
    if (!this.scales) return 1;
    const fractions = geometry.plane.map((axis) => {
      const reaches = [];
      for (let n = axis; n < this.scales.length; n += this.dim) reaches.push(this.scales[n]);
      reaches.sort((a, b) => a - b);
      return reaches[reaches.length >> 1] / (geometry.home[1][axis] - geometry.home[0][axis]);
    });
    const usual = Math.sqrt(fractions[0] * fractions.at(-1));
    return SIZES.find((size) => size * usual < 0.04) ?? SIZES.at(-1);
  }

  heaviest(site) {
    let best = 0;
    for (let g = 1; g < this.numGaussians; g++) {
      if (this.weights[site * this.numGaussians + g] > this.weights[site * this.numGaussians + best]) best = g;
    }
    return best;
  }

  // Draws the particles that are in view; settings: {gaussian, by, layer, size}
  draw(context, picture, { gaussian, by, layer, size }) {
    const values = this.colours(by, layer);
    const scale = { limits: ends(values), palette: SEQUENTIAL };
    this.drawn = [];
    for (const n of this.order) {
      if (this.drawn.length >= MOST) break;
      const g = gaussian < 0 ? this.heaviest(n) : gaussian;
      const at = n * this.numGaussians + g;
      const placed = this.displacements ? this.arrow(picture, n, at) : this.ellipse(picture, at, size);
      if (placed) this.drawn.push({ at, site: this.sites[n], g, value: values[at], ...placed });
    }
    for (const [width, stroke] of [[2.6, () => "#ffffffa0"], [1.3, ({ value }) => css(value, scale)]]) {
      context.lineWidth = width;
      for (const particle of this.drawn) {
        context.strokeStyle = stroke(particle);
        context.beginPath();
        if (particle.tail) traceArrow(context, [particle.px, particle.py], particle.tail);
        else context.ellipse(particle.px, particle.py, particle.rx, particle.ry, 0, 0, 2 * Math.PI);
        context.stroke();
      }
    }
    context.lineWidth = 1;
    return scale;
  }

  // Returns the ellipse of a particle in pixels; null where it is out of view.
  ellipse(picture, at, size) {
    const { geometry } = picture.content;
    const [across, up] = geometry.plane;
    const center = (axis) => this.centers[at * this.dim + axis];
    const reach = (axis) => this.scales[at * this.dim + axis];
    const x = center(across);
    const y = up === undefined ? this.weights[at] : center(up);
    const depth = reach(geometry.slice.axis);
    if (!isSeen(picture, x, y, center(geometry.slice.axis), depth)) return null;
    const [px, py] = picture.toPixel(x, y);
    const [ex] = picture.toPixel(x + size * reach(across), y);
    const high = up === undefined ? 2 : Math.abs(picture.toPixel(x, y + size * reach(up))[1] - py);
    return { px, py, rx: Math.max(1, ex - px), ry: Math.max(1, high) };
  }

  // Returns the arrow of a particle in pixels, which ends at its site; null where that is out of view.
  arrow(picture, n, at) {
    const { geometry } = picture.content;
    const [across, up] = geometry.plane;
    const site = (axis) => geometry.positions[this.sites[n] * this.dim + axis];
    const way = (axis) => this.displacements[at * this.dim + axis];
    const x = site(across);
    const y = up === undefined ? this.weights[at] : site(up);
    const { axis } = geometry.slice;
    const lines = geometry.kind === "axes" ? geometry.shape[geometry.file_axes[axis]] : Math.cbrt(geometry.numSites);
    const depth = (geometry.upper[axis] - geometry.lower[axis]) / lines / 2;
    if (!isSeen(picture, x, y, site(axis), depth)) return null;
    const [px, py] = picture.toPixel(x, y);
    const tail = picture.toPixel(x - way(across) * geometry.eastward(y), up === undefined ? y : y - way(up));
    return { px, py, rx: HEAD, ry: HEAD, tail };
  }

  // Returns the particle under the pointer in words, or "".
  words(px, py, geometry) {
    let best = null;
    let least = 1.6;
    for (const particle of this.drawn) {
      const away = Math.hypot((px - particle.px) / (particle.rx + 2), (py - particle.py) / (particle.ry + 2));
      if (away < least) {
        least = away;
        best = particle;
      }
    }
    if (!best) return "";
    const numbers = (array) =>
      Array.from({ length: this.dim }, (_, axis) => short(array[best.at * this.dim + axis])).join(", ");
    const extent = this.displacements
      ? `displacement (${numbers(this.displacements)})`
      : `scale (${numbers(this.scales)})`;
    return `particle ${best.g + 1} of site ${best.site}: center (${numbers(this.centers)}), ` +
      `${extent}, weight ${short(this.weights[best.at])}`;
  }
}

// Returns whether a point of the plane is in view and, of three dimensions, near enough to the slice.
function isSeen(picture, x, y, depth, reach) {
  const { geometry, box } = picture.content;
  if (x < box.left || x > box.right || y < box.bottom || y > box.top) return false;
  return geometry.numAxes < 3 || Math.abs(depth - geometry.slice.at) <= reach;
}

// Adds an arrow from its tail to its tip to a path; its head shrinks with it.
export function traceArrow(path, [px, py], [x, y], most = HEAD) {
  const angle = Math.atan2(py - y, px - x);
  const head = Math.min(most, Math.hypot(px - x, py - y) / 2);
  path.moveTo(x, y);
  path.lineTo(px, py);
  for (const side of [-0.5, 0.5]) {
    path.moveTo(px, py);
    path.lineTo(px - head * Math.cos(angle + side), py - head * Math.sin(angle + side));
  }
}

function ends(values) {
  const [low, high] = endsOf(values);
  return high > low ? [low, high] : [low - 0.5, low + 0.5];
}
