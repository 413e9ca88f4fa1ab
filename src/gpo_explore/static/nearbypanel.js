// The particles of the site next to the asked point: a table, and arrows or ellipses over the field.

import { plain } from "./ablation.js";
import { short } from "./colours.js";
import { cut, images, strokeSeen, trace } from "./ellipses.js";
import { traceArrow } from "./particles.js";
import { complain } from "./problem.js";
import { element } from "./store.js";
import { Latest } from "./wire.js";

const HINT = "Click a point of the field to see its particles.";
const HEAD = 7;

export class NearbyPanel {
  constructor(store, field) {
    this.store = store;
    this.field = field;
    const { reasons } = store.run;
    if (reasons.particles) {
      element("nearby-seen").textContent = reasons.particles;
      element("show-nearby").disabled = true;
      return;
    }
    this.latest = new Latest("nearby");
    const box = element("show-nearby");
    box.addEventListener("change", () => store.set({ showsNearby: box.checked }));
    field.overlays.push((context, picture) => this.draw(context, picture));
    store.on(["point", "example", "ablation"], () => this.load());
    store.on(["showsNearby"], () => this.follow());
    this.follow();
    element("nearby-seen").textContent = HINT;
  }

  follow() {
    element("show-nearby").checked = this.store.showsNearby;
    this.field.draw();
  }

  async load() {
    if (!this.latest) return;
    const { example, ablation, point } = this.store;
    if (!point) {
      this.found = null;
      this.list();
      return;
    }
    try {
      const found = await this.latest.ask({ example, ablation: plain(ablation), point });
      if (!found) return;
      this.found = found;
      this.list();
      this.field.draw();
      complain("nearby", null);
    } catch (error) {
      complain("nearby", error);
    }
  }

  // Returns {layer, number, center, extent, weight} of every particle.
  get rows() {
    const { arrays, metadata } = this.found;
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
    if (!this.found) {
      element("nearby-seen").textContent = HINT;
      table.replaceChildren();
      return;
    }
    const { metadata, arrays } = this.found;
    const isMoving = Boolean(arrays.displacements);
    const heaviest = Math.max(...this.rows.map(({ weight }) => weight));
    const many = metadata.layers.length > 1;
    const names = ["", "center", isMoving ? "displacement" : "scale σ", "weight"];
    const head = document.createElement("tr");
    head.append(...names.map((name) => cell("th", name)));
    const lines = this.rows.map(({ layer, number, center, extent, weight }) => {
      const line = document.createElement("tr");
      const bar = cell("td", short(weight));
      bar.className = "barred";
      bar.style.setProperty("--part", `${(100 * weight) / heaviest}%`);
      const name = many ? `${number + 1} of layer ${layer + 1}` : String(number + 1);
      line.append(cell("th", name), cell("td", center.map(short).join(", ")), cell("td", extent.map(short).join(", ")), bar);
      return line;
    });
    table.replaceChildren(head, ...lines);
    const { units } = this.store.geometry;
    const shared = units.every((unit) => unit === units[0]) && units[0] ? ` In ${units[0]}.` : "";
    const isLine = this.store.geometry.numAxes === 1;
    const drawn = isMoving
      ? `${isLine ? "Lines" : "Arrows"} lead from centers to the site. ${metadata.no_scale}`
      : `${isLine ? "Lines" : "Ellipses"} of 1 σ around the centers; the scale is learned, along every axis.`;
    element("nearby-seen").textContent = `Site ${metadata.site}, next to the point.${shared} ${drawn}`;
  }

  // The particles of the last layer; the heavier, the thicker.
  draw(context, picture) {
    if (!this.found || !this.store.showsNearby || !this.store.point) return;
    const { geometry } = picture.content;
    if (this.found.arrays.centers.shape[2] !== geometry.numAxes) return;
    const rows = this.rows.filter(({ isLast }) => isLast);
    const heaviest = Math.max(...rows.map(({ weight }) => weight), 1e-12);
    for (const row of rows) {
      const path = new Path2D();
      const draw = geometry.numAxes === 1 ? this.segment : this.found.arrays.displacements ? this.arrow : this.ellipse;
      const tip = draw.call(this, path, picture, row);
      const part = row.weight / heaviest;
      strokeSeen(context, path, { width: 0.8 + 2.2 * part });
      label(context, row.number + 1, tip);
    }
  }

  // On a line particles lie below each other: from the center to the site, or one sigma to both sides.
  segment(path, picture, { center, extent, number }) {
    const { frame } = picture;
    const y = frame.y + frame.height - 12 - 16 * number;
    const isMoving = Boolean(this.found.arrays.displacements);
    const [site] = this.found.metadata.place;
    const ends = isMoving ? [site - extent[0], site] : [center[0] - extent[0], center[0] + extent[0]];
    const [from, to] = ends.map((at) => picture.toPixel(at, 0)[0]);
    path.moveTo(from, y);
    path.lineTo(to, y);
    path.moveTo(to, y - 4);
    path.lineTo(to, y + 4);
    return [from + 11 * Math.sign(from - to || -1), y];
  }

  // On a map and around seams the arrow is the displacement itself, which is the shortest way.
  arrow(path, picture, { extent }) {
    const { geometry } = picture.content;
    const [across, up] = geometry.plane;
    const [x, y] = [across, up].map((axis) => this.found.metadata.place[axis]);
    const [right, above] = [extent[across] * geometry.eastward(y), extent[up]];
    for (const turn of images(geometry, across)) {
      for (const rise of images(geometry, up)) {
        traceArrow(path, picture.toPixel(x + turn, y + rise), picture.toPixel(x + turn - right, y + rise - above), HEAD);
      }
    }
    // Its number stands beyond the tail, so that a short arrow is seen.
    const [[px, py], tail] = [picture.toPixel(x, y), picture.toPixel(x - right, y - above)];
    const angle = Math.atan2(py - tail[1], px - tail[0]);
    return [tail[0] - 11 * Math.cos(angle), tail[1] - 11 * Math.sin(angle)];
  }

  ellipse(path, picture, { center, extent, number }) {
    const { geometry } = picture.content;
    const dim = geometry.numAxes;
    const covariance = Float64Array.from({ length: dim * dim }, (_, n) => (n % (dim + 1) === 0 ? extent[n / (dim + 1)] ** 2 : 0));
    const ellipse = cut(geometry, center, covariance);
    const [across, up] = geometry.plane;
    // What the slice misses has but its number, where its center lies before or behind.
    if (ellipse) trace(path, picture, ellipse);
    const [px, py] = ellipse ? picture.toPixel(ellipse.x, ellipse.y) : picture.toPixel(center[across], center[up]);
    // Numbers stand around small ellipses, not on them.
    const angle = Math.PI / 4 + (number * Math.PI) / 2;
    return [px + 13 * Math.cos(angle), py + 13 * Math.sin(angle)];
  }
}

function cell(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
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
