// What matters over the test split: parts of the model by how much predictions change without them.

import { toggledLayer, toggledModes } from "./ablation.js";
import { markChosen, radios } from "./controls.js";
import { LongAsk } from "./longask.js";
import { complain } from "./problem.js";
import { element } from "./store.js";

const MOST = 60;
const KINDS = { all: "All", layer: "Layers", head: "Heads", ring: "Rings", mode: "Modes", particle: "Particles" };

export class RankingPanel {
  constructor(store) {
    this.store = store;
    this.long = new LongAsk("ranking", (progress) => this.advance(progress));
    this.found = null;
    this.isComputing = false;
    element("ranking-compute").addEventListener("click", () => (this.isComputing ? this.stop() : this.compute()));
    store.on(["rankedKind", "ablation"], () => this.list());
  }

  // Takes what is known already, from interpret.json or from before.
  async begin() {
    await this.load({ computes: false });
  }

  // At first as many test examples as a minute allows; then, if one wants it, all of them.
  async compute() {
    this.isComputing = true;
    this.advance({ done: 0, of: 1, text: "predicting test examples" });
    await this.load({ computes: true, is_whole: isComputed(this.found) });
  }

  // What was read before it was stopped stays known.
  async stop() {
    this.idle("Stopped.");
    await this.load({ computes: false });
  }

  async load(body) {
    try {
      const found = await this.long.ask(body);
      if (!found) return;
      complain("ranking", null);
      if (found.metadata.reason) this.idle(found.metadata.reason, found.metadata.can_compute);
      else this.show(found.metadata);
    } catch (error) {
      this.idle("");
      complain("ranking", error);
    }
  }

  advance({ done, of, text }) {
    const bar = element("ranking-progress");
    bar.hidden = false;
    Object.assign(bar, { max: of, value: done });
    element("ranking-seen").textContent = `${text}: ${done} of ${of}`;
    element("ranking-compute").textContent = "Stop";
  }

  idle(text, canCompute = true) {
    this.isComputing = false;
    element("ranking-progress").hidden = true;
    const button = element("ranking-compute");
    button.textContent = "Compute";
    button.hidden = !canCompute;
    element("ranking-seen").textContent = canCompute
      ? `${text} Which layers, modes and particles predictions rely on: each is switched off over the test split.`
      : text;
  }

  show(found) {
    this.found = found;
    this.isComputing = false;
    element("ranking-progress").hidden = true;
    const button = element("ranking-compute");
    button.hidden = found.num_read === found.num_examples;
    button.textContent = isComputed(found) ? `Go on to all ${found.num_examples}` : "Compute";
    const kinds = Object.keys(KINDS).filter((kind) => kind === "all" || found.rows.some((row) => row.kind === kind));
    const choices = kinds.map((value) => ({ value, text: KINDS[value] }));
    this.buttons = radios("ranking-kinds", choices, this.store.rankedKind, (rankedKind) => this.store.set({ rankedKind }));
    const some = found.num_read < found.num_examples ? `${found.num_read} of ${found.num_examples}` : found.num_read;
    const source = isComputed(found) ? "" : `, from ${found.source}`;
    element("ranking-seen").textContent =
      `How much predictions change without a part, over ${some} test examples${source}. ` +
      `Grey: less than the model errs (${percent(found.error)}). A click switches it off.`;
    this.list();
  }

  list() {
    if (!this.found) return;
    const { rankedKind } = this.store;
    markChosen(this.buttons, rankedKind);
    const rows = this.found.rows.filter(({ kind }) => rankedKind === "all" || kind === rankedKind).slice(0, MOST);
    const most = Math.max(...rows.map(({ change }) => change), 1e-12);
    element("ranking").replaceChildren(...rows.map((row) => this.item(row, most)));
  }

  item(row, most) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.disabled = !row.off;
    if (!row.off) button.title = "The page switches off layers and modes; particles are switched off by gpo interpret.";
    button.classList.toggle("small", row.change < this.found.error);
    button.style.setProperty("--part", `${(100 * row.change) / most}%`);
    button.setAttribute("aria-pressed", String(Boolean(row.off) && this.isOff(row.off)));
    const [name, value] = [document.createElement("span"), document.createElement("b")];
    name.textContent = row.name;
    value.textContent = percent(row.change);
    button.append(name, value);
    button.addEventListener("click", () => this.toggle(row.off));
    item.append(button);
    return item;
  }

  isOff({ modes = [], layers = [] }) {
    const { ablation } = this.store;
    return layers.every((layer) => ablation.layers.has(layer)) && modes.every((pair) => ablation.modes.has(pair.join(",")));
  }

  toggle({ modes = [], layers = [] }) {
    let { ablation } = this.store;
    for (const layer of layers) ablation = toggledLayer(ablation, layer);
    if (modes.length) ablation = toggledModes(ablation, modes);
    this.store.set({ ablation });
  }
}

function isComputed(found) {
  return found?.source === "computed here";
}

function percent(part) {
  return part >= 0.1 ? `${Math.round(100 * part)} %` : `${(100 * part).toPrecision(2)} %`;
}
