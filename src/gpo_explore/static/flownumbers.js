// What the learned motion is worth, in numbers with their controls: a gauge for what is shown, and a
// row for every particle, over some test examples.

import { short } from "./colours.js";
import { element } from "./store.js";

const NOTHING = "–";

export class FlowNumbers {
  constructor(store) {
    this.store = store;
    this.hasVelocity = Boolean(store.run.velocity);
    const { transports, num_gaussians: count } = store.run.operator;
    this.names = transports.flatMap((layer) =>
      Array.from({ length: count }, (_, n) => (transports.length > 1 ? `layer ${layer + 1}, ${n + 1}` : String(n + 1))));
    this.layers = transports.flatMap((layer) => Array(count).fill(layer));
    const rows = this.names.map((name, carrier) => this.row(name, carrier));
    element("carriers").replaceChildren(...rows);
    element("carriers-velocity").hidden = !this.hasVelocity;
    element("gauge").hidden = !this.hasVelocity;
    element("flow-words").hidden = element("numbers-title").hidden = !this.hasVelocity;
  }

  // Returns what a particle is called.
  name(carrier) {
    const { transports, num_gaussians: count } = this.store.run.operator;
    return `particle ${(carrier % count) + 1}${transports.length > 1 ? ` of layer ${this.layers[carrier] + 1}` : ""}`;
  }

  row(name, carrier) {
    const row = document.createElement("tr");
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: name });
    button.dataset.carrier = carrier;
    button.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-label", `Stream ${this.name(carrier)}`);
    button.addEventListener("click", () => this.store.set({ carrier }));
    const first = document.createElement("th");
    first.scope = "row";
    first.append(button);
    row.append(first, ...Array.from({ length: this.hasVelocity ? 3 : 2 }, () => cell(NOTHING)));
    return row;
  }

  // Marks the particle that is shown.
  mark(carrier) {
    for (const button of element("carriers").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.carrier) === carrier));
    }
  }

  // motion, flow: the metadata of both answers; lengths on the sphere are drawn in degrees.
  show(motion, flow) {
    this.fill(motion, { factor: flow.units === "°" ? 180 / Math.PI : 1, name: flow.units });
    this.gauge(flow);
  }

  fill({ rows, best, num_examples: count, reason }, units) {
    [...element("carriers").children].forEach((line, n) => {
      const { rms_displacement: size, share, velocity_correlation: own, low, high, other_examples: others } = rows[n];
      const cells = [short(Number((units.factor * size).toPrecision(2))), `${Math.round(100 * share)} %`];
      if (this.hasVelocity) cells.push(own === null ? NOTHING : signed(own));
      [...line.children].slice(1).forEach((part, k) => (part.textContent = cells[k]));
      line.classList.toggle("best", n === best);
      if (!this.hasVelocity || own === null) return;
      const control = document.createElement("small");
      control.textContent = ` ${signed(low)} to ${signed(high)}${others === null ? "" : `; ${signed(others)}`}`;
      line.lastChild.append(control);
    });
    const velocity = this.hasVelocity
      ? " Velocity: correlation with the true one; small: by chance, with fields moved against each other; then with other examples."
      : ` ${reason ?? ""}`;
    element("carriers-note").textContent =
      `Over ${count} test example${count === 1 ? "" : "s"}. Moves: RMS length per step${units.name ? `, ${units.name}` : ""}. Carries: how much of the predicted ` +
      `change is lost where it is held still; bold carries most.${velocity}`;
  }

  // Shows how well what is streamed agrees with the true flow.
  gauge({ own, others, words }) {
    if (!this.hasVelocity || own === undefined) return;
    element("flow-words").textContent = words;
    place("gauge-own", own);
    const known = others.length ? others : [0];
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const band = element("gauge-others");
    band.hidden = !others.length;
    band.style.setProperty("left", `${percent(low)}%`);
    band.style.setProperty("width", `${Math.max(1, percent(high) - percent(low))}%`);
    element("gauge-mean").hidden = !others.length;
    place("gauge-mean", known.reduce((sum, one) => sum + one, 0) / known.length);
    element("gauge").setAttribute("aria-label", words);
  }
}

const percent = (value) => 50 * (1 + Math.min(1, Math.max(-1, value)));
const signed = (value) => (Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2).replace("-", "−"));

function place(id, value) {
  element(id).style.setProperty("left", `${percent(value)}%`);
}

function cell(text) {
  const made = document.createElement("td");
  made.textContent = text;
  return made;
}
