// Importance of the model's parts: the change of predictions without them, over the test split.

import { toggledLayer, toggledModes } from "./ablation.js";
import { markSelected, radios } from "./controls.js";
import { LongRequest } from "./longrequest.js";
import { showError } from "./problem.js";
import { element, make } from "./store.js";

const MAX_ROWS = 60;
const KINDS = { all: "All", layer: "Layers", head: "Heads", ring: "Shells", mode: "Modes", particle: "Particles" };

export class RankingPanel {
  constructor(store) {
    this.store = store;
    this.request = new LongRequest("ranking", (progress) => this.showProgress(progress));
    this.ranking = null;
    this.isComputing = false;
    element("ranking-compute").addEventListener("click", () => (this.isComputing ? this.stop() : this.compute()));
    store.on(["rankedKind", "ablation"], () => this.list());
  }

  // Loads existing results, from interpret.json or from an earlier computation.
  async begin() {
    await this.load({ computes: false });
  }

  // Processes as many test examples as a minute allows; the second time, all of them.
  async compute() {
    this.isComputing = true;
    this.showProgress({ done: 0, total: 1, text: "predicting test examples" });
    await this.load({ computes: true, is_whole: isComputed(this.ranking) });
  }

  // Shows the results of the examples that were processed before the stop.
  async stop() {
    this.showIdle("Stopped.");
    await this.load({ computes: false });
  }

  async load(body) {
    try {
      const answer = await this.request.send(body);
      if (!answer) return;
      showError("ranking", null);
      if (answer.metadata.reason) this.showIdle(answer.metadata.reason, answer.metadata.can_compute);
      else this.show(answer.metadata);
    } catch (error) {
      this.showIdle("");
      showError("ranking", error);
    }
  }

  showProgress({ done, total, text }) {
    const bar = element("ranking-progress");
    bar.hidden = false;
    Object.assign(bar, { max: total, value: done });
    element("ranking-seen").textContent = `${text}: ${done} of ${total}`;
    element("ranking-compute").textContent = "Stop";
  }

  showIdle(text, canCompute = true) {
    this.isComputing = false;
    element("ranking-progress").hidden = true;
    const button = element("ranking-compute");
    button.textContent = "Compute";
    button.hidden = !canCompute;
    element("ranking-seen").textContent = canCompute
      ? `${text} Computes how much predictions on the test split change without each layer, mode or particle.`
      : text;
  }

  show(ranking) {
    this.ranking = ranking;
    this.isComputing = false;
    element("ranking-progress").hidden = true;
    const button = element("ranking-compute");
    button.hidden = ranking.num_read === ranking.num_examples;
    button.textContent = isComputed(ranking) ? `Continue to all ${ranking.num_examples}` : "Compute";
    const kinds = Object.keys(KINDS).filter((kind) => kind === "all" || ranking.rows.some((row) => row.kind === kind));
    const choices = kinds.map((value) => ({ value, text: KINDS[value] }));
    this.buttons = radios("ranking-kinds", choices, this.store.rankedKind, (rankedKind) => this.store.set({ rankedKind }));
    const count = ranking.num_read < ranking.num_examples ? `${ranking.num_read} of ${ranking.num_examples}` : ranking.num_read;
    const source = isComputed(ranking) ? "" : `, from ${ranking.source}`;
    element("ranking-seen").textContent =
      `Relative change of predictions without a part, over ${count} test examples${source}. ` +
      `Grey: smaller than the model's error (${percent(ranking.error)}). Click a part to switch it off.`;
    this.list();
  }

  list() {
    if (!this.ranking) return;
    const { rankedKind } = this.store;
    markSelected(this.buttons, rankedKind);
    const rows = this.ranking.rows.filter(({ kind }) => rankedKind === "all" || kind === rankedKind).slice(0, MAX_ROWS);
    const largest = Math.max(...rows.map(({ change }) => change), 1e-12);
    element("ranking").replaceChildren(...rows.map((row) => this.item(row, largest)));
  }

  item(row, largest) {
    const [name, value] = [make("span", { textContent: row.name }), make("b", { textContent: percent(row.change) })];
    const button = make("button", { type: "button", disabled: !row.off }, name, value);
    if (!row.off) button.title = "The page can switch off layers and modes, not particles.";
    button.classList.toggle("small", row.change < this.ranking.error);
    button.style.setProperty("--part", `${(100 * row.change) / largest}%`);
    button.setAttribute("aria-pressed", String(Boolean(row.off) && this.isOff(row.off)));
    button.addEventListener("click", () => this.toggle(row.off));
    return make("li", {}, button);
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

function isComputed(ranking) {
  return ranking?.source === "computed here";
}

function percent(fraction) {
  return fraction >= 0.1 ? `${Math.round(100 * fraction)} %` : `${(100 * fraction).toPrecision(2)} %`;
}
