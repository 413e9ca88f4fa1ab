// Statistics of the learned motion with controls: the correlation of the shown displacements as a gauge,
// and a table of all particles, over several test examples.

import { format } from "./colours.js";
import { element, make } from "./store.js";

const MISSING = "–";

export class FlowNumbers {
  constructor(store) {
    this.store = store;
    this.hasVelocity = Boolean(store.run.velocity);
    const { transports, num_gaussians: count } = store.run.operator;
    this.names = transports.flatMap((layer) =>
      Array.from({ length: count }, (_, n) => (transports.length > 1 ? `layer ${layer + 1}, ${n + 1}` : String(n + 1))));
    this.layers = transports.flatMap((layer) => Array(count).fill(layer));
    const rows = this.names.map((name, advector) => this.row(name, advector));
    element("advectors").replaceChildren(...rows);
    element("advectors-velocity").hidden = !this.hasVelocity;
    element("gauge").hidden = !this.hasVelocity;
    element("flow-words").hidden = element("numbers-title").hidden = !this.hasVelocity;
  }

  // Returns the name of a particle.
  name(advector) {
    const { transports, num_gaussians: count } = this.store.run.operator;
    return `particle ${(advector % count) + 1}${transports.length > 1 ? ` of layer ${this.layers[advector] + 1}` : ""}`;
  }

  row(name, advector) {
    const button = make("button", { type: "button", textContent: name });
    button.dataset.advector = advector;
    button.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-label", `Stream ${this.name(advector)}`);
    button.addEventListener("click", () => this.store.set({ advector }));
    return make("tr", {}, make("th", { scope: "row" }, button), ...Array.from({ length: this.hasVelocity ? 3 : 2 }, () => make("td", { textContent: MISSING })));
  }

  // Marks the shown particle.
  mark(advector) {
    for (const button of element("advectors").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.advector) === advector));
    }
  }

  // motion, flow: metadata of the two answers; lengths on the sphere are shown in degrees.
  show(motion, flow) {
    this.fill(motion, { factor: flow.units === "°" ? 180 / Math.PI : 1, name: flow.units });
    this.gauge(flow);
  }

  fill({ rows, best, num_examples: count, reason }, units) {
    [...element("advectors").children].forEach((line, n) => {
      const { rms_displacement: length, share: importance, velocity_correlation: own, low, high, other_examples: others } = rows[n];
      const cells = [format(Number((units.factor * length).toPrecision(2))), `${Math.round(100 * importance)} %`];
      if (this.hasVelocity) cells.push(own === null ? MISSING : signed(own));
      [...line.children].slice(1).forEach((part, k) => (part.textContent = cells[k]));
      line.classList.toggle("best", n === best);
      if (!this.hasVelocity || own === null) return;
      const textContent = ` ${signed(low)} to ${signed(high)}${others === null ? "" : `; ${signed(others)}`}`;
      line.lastChild.append(make("small", { textContent }));
    });
    const velocity = this.hasVelocity
      ? " Velocity: correlation with the true velocity; in small type, its range by chance (shifted fields), then with other examples."
      : ` ${reason ?? ""}`;
    element("advectors-note").textContent =
      `Over ${count} test example${count === 1 ? "" : "s"}. Length: RMS displacement per step${units.name ? `, ${units.name}` : ""}. Importance: fraction of the ` +
      `predicted change that is lost at zero displacement; the largest is bold.${velocity}`;
  }

  // Shows the correlation of the shown displacements with the true velocity.
  gauge({ own, others, words }) {
    if (!this.hasVelocity || own === undefined) return;
    element("flow-words").textContent = words;
    place("gauge-own", own);
    const controls = others.length ? others : [0];
    const [low, high] = [Math.min(...controls), Math.max(...controls)];
    const band = element("gauge-others");
    band.hidden = !others.length;
    band.style.setProperty("left", `${percent(low)}%`);
    band.style.setProperty("width", `${Math.max(1, percent(high) - percent(low))}%`);
    element("gauge-mean").hidden = !others.length;
    place("gauge-mean", controls.reduce((sum, value) => sum + value, 0) / controls.length);
    element("gauge").setAttribute("aria-label", words);
  }
}

const percent = (value) => 50 * (1 + Math.min(1, Math.max(-1, value)));
const signed = (value) => (Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2).replace("-", "−"));

function place(id, value) {
  element(id).style.setProperty("left", `${percent(value)}%`);
}
