// The particles of the site nearest to the queried point: a table, and arrows or ellipses over the field.

import { ablationBody } from "./ablation.js";
import { format } from "./colours.js";
import { checkbox } from "./controls.js";
import { addEllipse, images, planeEllipse, strokeOutlined } from "./ellipses.js";
import { addArrow } from "./particles.js";
import { showError } from "./problem.js";
import { element, make } from "./store.js";
import { LatestRequest } from "./requests.js";

const HINT = "Click a point of the field to see its particles.";
const ARROW_HEAD = 7;

export class NearbyPanel {
  constructor(store, field) {
    this.store = store;
    this.field = field;
    const { reasons } = store.run;
    checkbox(store, "show-nearby", "showsNearby", reasons.particles);
    if (reasons.particles) {
      element("nearby-seen").textContent = reasons.particles;
      return;
    }
    this.request = new LatestRequest("nearby");
    field.overlays.push((context, picture) => this.draw(context, picture));
    store.on(["point", "example", "ablation"], () => this.load());
    store.on(["showsNearby"], () => this.field.draw());
    element("nearby-seen").textContent = HINT;
  }

  async load() {
    if (!this.request) return;
    const { example, ablation, point } = this.store;
    if (!point) {
      this.answer = null;
      this.list();
      return;
    }
    try {
      const answer = await this.request.send({ example, ablation: ablationBody(ablation), point });
      if (!answer) return;
      this.answer = answer;
      this.list();
      this.field.draw();
      showError("nearby", null);
    } catch (error) {
      showError("nearby", error);
    }
  }

  // Returns {layer, number, isLast, center, extent, weight} of every particle.
  get rows() {
    const { arrays, metadata } = this.answer;
    const { centers, weights } = arrays;
    const extents = arrays.displacements ?? arrays.scales;
    const [layers, count, dim] = centers.shape;
    const part = ({ data }, n) => Array.from(data.subarray(n * dim, (n + 1) * dim));
    return Array.from({ length: layers * count }, (_, n) => ({
      layer: metadata.layers[Math.floor(n / count)], number: n % count, isLast: n >= (layers - 1) * count,
      center: part(centers, n), extent: part(extents, n), weight: weights.data[n],
    }));
  }

  list() {
    const table = element("nearby-rows");
    if (!this.answer) {
      element("nearby-seen").textContent = HINT;
      table.replaceChildren();
      return;
    }
    const { metadata, arrays } = this.answer;
    const isMoving = Boolean(arrays.displacements);
    const heaviest = Math.max(...this.rows.map(({ weight }) => weight));
    const hasLayers = metadata.layers.length > 1;
    const cell = (tag, textContent) => make(tag, { textContent });
    const names = ["", "center", isMoving ? "displacement" : "scale σ", "weight"];
    const head = make("tr", {}, ...names.map((name) => cell("th", name)));
    const lines = this.rows.map(({ layer, number, center, extent, weight }) => {
      const bar = make("td", { textContent: format(weight), className: "barred" });
      bar.style.setProperty("--part", `${(100 * weight) / heaviest}%`);
      const name = hasLayers ? `${number + 1} of layer ${layer + 1}` : String(number + 1);
      return make("tr", {}, cell("th", name), ...[center, extent].map((values) => cell("td", values.map(format).join(", "))), bar);
    });
    table.replaceChildren(head, ...lines);
    const { units } = this.store.geometry;
    const inUnits = units.every((unit) => unit === units[0]) && units[0] ? ` Lengths in ${units[0]}.` : "";
    const isLine = this.store.geometry.numAxes === 1;
    const drawn = isMoving
      ? `${isLine ? "Lines" : "Arrows"} point from the centers to the site. ${metadata.no_scale}`
      : `${isLine ? "Lines" : "Ellipses"} of 1 σ around the centers, with the learned scale along each axis.`;
    element("nearby-seen").textContent = `Site ${metadata.site}, nearest to the point.${inUnits} ${drawn}`;
  }

  // Draws the particles of the last layer, with line widths by weight.
  draw(context, picture) {
    if (!this.answer || !this.store.showsNearby || !this.store.point) return;
    const { geometry } = picture.content;
    if (this.answer.arrays.centers.shape[2] !== geometry.numAxes) return;
    const rows = this.rows.filter(({ isLast }) => isLast);
    const heaviest = Math.max(...rows.map(({ weight }) => weight), 1e-12);
    for (const row of rows) {
      const path = new Path2D();
      const draw = geometry.numAxes === 1 ? this.segment : this.answer.arrays.displacements ? this.arrow : this.ellipse;
      const tip = draw.call(this, path, picture, row);
      strokeOutlined(context, path, { width: 0.8 + (2.2 * row.weight) / heaviest });
      label(context, row.number + 1, tip);
    }
  }

  // In one dimension, particles are stacked segments: from the center to the site, or one sigma to both sides.
  segment(path, picture, { center, extent, number }) {
    const { frame } = picture;
    const y = frame.y + frame.height - 12 - 16 * number;
    const isMoving = Boolean(this.answer.arrays.displacements);
    const [site] = this.answer.metadata.place;
    const ends = isMoving ? [site - extent[0], site] : [center[0] - extent[0], center[0] + extent[0]];
    const [from, to] = ends.map((at) => picture.toPixel(at, 0)[0]);
    path.moveTo(from, y);
    path.lineTo(to, y);
    path.moveTo(to, y - 4);
    path.lineTo(to, y + 4);
    return [from + 11 * Math.sign(from - to || -1), y];
  }

  // Draws the displacement, which is the shortest path also on a map or across a periodic boundary.
  arrow(path, picture, { extent }) {
    const { geometry } = picture.content;
    const [across, up] = geometry.plane;
    const [x, y] = [across, up].map((axis) => this.answer.metadata.place[axis]);
    const [right, above] = [extent[across] * geometry.eastward(y), extent[up]];
    for (const shift of images(geometry, across)) {
      for (const rise of images(geometry, up)) {
        addArrow(path, picture.toPixel(x + shift, y + rise), picture.toPixel(x + shift - right, y + rise - above), ARROW_HEAD);
      }
    }
    // The label is beyond the tail, so that it does not hide a short arrow.
    const [[px, py], tail] = [picture.toPixel(x, y), picture.toPixel(x - right, y - above)];
    const angle = Math.atan2(py - tail[1], px - tail[0]);
    return [tail[0] - 11 * Math.cos(angle), tail[1] - 11 * Math.sin(angle)];
  }

  ellipse(path, picture, { center, extent, number }) {
    const { geometry } = picture.content;
    const dim = geometry.numAxes;
    const covariance = Float64Array.from({ length: dim * dim }, (_, n) => (n % (dim + 1) === 0 ? extent[n / (dim + 1)] ** 2 : 0));
    const ellipse = planeEllipse(geometry, center, covariance);
    const [across, up] = geometry.plane;
    // A particle that does not intersect the slice has only a label, at the projection of its center.
    if (ellipse) addEllipse(path, picture, ellipse);
    const [px, py] = ellipse ? picture.toPixel(ellipse.x, ellipse.y) : picture.toPixel(center[across], center[up]);
    // Labels are placed around the center, so that they do not hide small ellipses.
    const angle = Math.PI / 4 + (number * Math.PI) / 2;
    return [px + 13 * Math.cos(angle), py + 13 * Math.sin(angle)];
  }
}

function label(context, text, [x, y]) {
  context.font = "600 11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = "#ffffffe0";
  context.beginPath();
  context.arc(x, y, 7.5, 0, 2 * Math.PI);
  context.fill();
  context.fillStyle = "#14181f";
  context.fillText(text, x, y + 0.5);
  context.font = "12px system-ui, sans-serif";
}
