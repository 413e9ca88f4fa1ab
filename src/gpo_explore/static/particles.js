// Gaussian particles, coloured by weight or by their state after a layer: particles of an encoder as
// ellipses, particles that move as arrows from their centers to their sites.

import { css, format, rangeOf, SEQUENTIAL } from "./colours.js";

const MAX_DRAWN = 200;
const SIZES = [2, 1, 0.5, 0.15, 0.05];
const ARROW_HEAD = 5;

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
    // A fixed shuffle, because a regular subset of a grid would show stripes.
    this.order = Array.from({ length: this.count }, (_, n) => n).sort(
      (a, b) => ((a * 2654435761) >>> 0) - ((b * 2654435761) >>> 0),
    );
  }

  // Returns the values that colour the particles: their weights, or their states after a layer.
  colours(by, layer) {
    if (by === "weight" || !this.states) return this.weights;
    const size = this.count * this.numGaussians;
    return this.states.subarray(layer * size, (layer + 1) * size);
  }

  // Returns the size of ellipses in sigma at which they hardly overlap.
  suitableSize(geometry) {
    if (!this.scales) return 1;
    const fractions = geometry.plane.map((axis) => {
      const scales = [];
      for (let n = axis; n < this.scales.length; n += this.dim) scales.push(this.scales[n]);
      scales.sort((a, b) => a - b);
      return scales[scales.length >> 1] / (geometry.home[1][axis] - geometry.home[0][axis]);
    });
    const median = Math.sqrt(fractions[0] * fractions.at(-1));
    return SIZES.find((size) => size * median < 0.04) ?? SIZES.at(-1);
  }

  heaviest(site) {
    let best = 0;
    for (let g = 1; g < this.numGaussians; g++) {
      if (this.weights[site * this.numGaussians + g] > this.weights[site * this.numGaussians + best]) best = g;
    }
    return best;
  }

  // Draws the visible particles; settings: {gaussian, by, layer, size}. Returns their colour scale.
  draw(context, picture, { gaussian, by, layer, size }) {
    const values = this.colours(by, layer);
    const scale = { limits: limitsOf(values), palette: SEQUENTIAL };
    this.drawn = [];
    for (const n of this.order) {
      if (this.drawn.length >= MAX_DRAWN) break;
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
        if (particle.tail) addArrow(context, [particle.px, particle.py], particle.tail);
        else context.ellipse(particle.px, particle.py, particle.rx, particle.ry, 0, 0, 2 * Math.PI);
        context.stroke();
      }
    }
    context.lineWidth = 1;
    return scale;
  }

  // Returns the ellipse of a particle in pixels; null if it is not visible.
  ellipse(picture, at, size) {
    const { geometry } = picture.content;
    const [across, up] = geometry.plane;
    const center = (axis) => this.centers[at * this.dim + axis];
    const scale = (axis) => this.scales[at * this.dim + axis];
    const x = center(across);
    const y = up === undefined ? this.weights[at] : center(up);
    const depth = scale(geometry.slice.axis);
    if (!isVisible(picture, x, y, center(geometry.slice.axis), depth)) return null;
    const [px, py] = picture.toPixel(x, y);
    const [ex] = picture.toPixel(x + size * scale(across), y);
    const height = up === undefined ? 2 : Math.abs(picture.toPixel(x, y + size * scale(up))[1] - py);
    return { px, py, rx: Math.max(1, ex - px), ry: Math.max(1, height) };
  }

  // Returns the arrow of a particle in pixels, which ends at its site; null if the site is not visible.
  arrow(picture, n, at) {
    const { geometry } = picture.content;
    const [across, up] = geometry.plane;
    const site = (axis) => geometry.positions[this.sites[n] * this.dim + axis];
    const displacement = (axis) => this.displacements[at * this.dim + axis];
    const x = site(across);
    const y = up === undefined ? this.weights[at] : site(up);
    const { axis } = geometry.slice;
    const lines = geometry.kind === "axes" ? geometry.shape[geometry.file_axes[axis]] : Math.cbrt(geometry.numSites);
    const depth = (geometry.upper[axis] - geometry.lower[axis]) / lines / 2;
    if (!isVisible(picture, x, y, site(axis), depth)) return null;
    const [px, py] = picture.toPixel(x, y);
    const tail = picture.toPixel(x - displacement(across) * geometry.eastward(y), up === undefined ? y : y - displacement(up));
    return { px, py, rx: ARROW_HEAD, ry: ARROW_HEAD, tail };
  }

  // Returns the text of the particle at the pointer, or "".
  describe(px, py) {
    let best = null;
    let smallest = 1.6;
    for (const particle of this.drawn) {
      const distance = Math.hypot((px - particle.px) / (particle.rx + 2), (py - particle.py) / (particle.ry + 2));
      if (distance < smallest) {
        smallest = distance;
        best = particle;
      }
    }
    if (!best) return "";
    const numbers = (array) =>
      Array.from({ length: this.dim }, (_, axis) => format(array[best.at * this.dim + axis])).join(", ");
    const extent = this.displacements
      ? `displacement (${numbers(this.displacements)})`
      : `scale (${numbers(this.scales)})`;
    return `particle ${best.g + 1} of site ${best.site}: center (${numbers(this.centers)}), ` +
      `${extent}, weight ${format(this.weights[best.at])}`;
  }
}

// Returns whether a position is inside the view and, in three dimensions, within maxDepth of the slice.
function isVisible(picture, x, y, depth, maxDepth) {
  const { geometry, box } = picture.content;
  if (x < box.left || x > box.right || y < box.bottom || y > box.top) return false;
  return geometry.numAxes < 3 || Math.abs(depth - geometry.slice.at) <= maxDepth;
}

// Adds an arrow from tail to tip to a path; a short arrow has a small head.
export function addArrow(path, [px, py], [x, y], size = ARROW_HEAD) {
  const angle = Math.atan2(py - y, px - x);
  const head = Math.min(size, Math.hypot(px - x, py - y) / 2);
  path.moveTo(x, y);
  path.lineTo(px, py);
  for (const side of [-0.5, 0.5]) {
    path.moveTo(px, py);
    path.lineTo(px - head * Math.cos(angle + side), py - head * Math.sin(angle + side));
  }
}

function limitsOf(values) {
  const [low, high] = rangeOf(values);
  return high > low ? [low, high] : [low - 0.5, low + 0.5];
}
