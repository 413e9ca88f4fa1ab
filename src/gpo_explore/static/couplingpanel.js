// Attention between the modes of one head, or the magnitude of the response by wave vector.

import { CellMap } from "./cells.js";
import { rangeOf, SEQUENTIAL } from "./colours.js";
import { fillSelect } from "./controls.js";
import { ordinals } from "./modes.js";
import { themeColour } from "./picture.js";
import { isOff, toggledModes } from "./ablation.js";
import { element, make } from "./store.js";

export class CouplingPanel {
  constructor(store) {
    this.store = store;
    const { modes, run } = store;
    if (run.reasons.coupling || !modes) {
      element("coupling-seen").textContent = run.reasons.coupling ?? "A model without layers has no couplings.";
      element("head-label").hidden = element("coupling").hidden = true;
      return;
    }
    this.map = new CellMap(element("coupling"), {
      onSelect: (place) => this.select(place),
      onToggle: (place) => this.toggle(place),
    });
    element("head-label").hidden = !modes.isPaper;
    fillSelect("head", ordinals(modes.numHeads));
    element("head").addEventListener("change", (event) => {
      const mode = Number(event.target.value) * modes.perHead + (store.mode % modes.perHead);
      store.set({ mode, partner: null });
    });
    store.on(["internals", "layer", "mode", "partner", "theme", "third", "ablation"], () => this.draw());
  }

  get layer() {
    return Math.max(0, this.store.layer - 1);
  }

  get head() {
    return Math.floor(this.store.mode / this.store.modes.perHead);
  }

  // Returns the receiving and the sending mode of a cell; for a wave, both are the wave.
  pair(place) {
    const { modes } = this.store;
    if (!modes.isPaper) return [modes.modeAt(place), modes.modeAt(place)];
    const first = this.head * modes.perHead;
    return [first + Math.floor(place / modes.perHead), first + (place % modes.perHead)];
  }

  select(place) {
    const [mode, partner] = this.pair(place);
    this.store.set({ mode, partner, showsWindows: true });
  }

  toggle(place) {
    const pairs = [[this.layer, this.pair(place)[0]]];
    this.store.set({ ablation: toggledModes(this.store.ablation, pairs) });
  }

  draw() {
    const { store } = this;
    if (!store.internals || store.mode === null) return;
    const { modes, mode, partner, ablation } = store;
    element("head").value = this.head;
    const content = modes.isPaper ? this.matrix() : this.responses();
    const [low, high] = rangeOf(content.values);
    this.map.show({
      ...content, scale: { limits: high > low ? [Math.min(0, low), high] : [0, high || 1], palette: SEQUENTIAL },
      marks: [{ place: content.placeOf(mode, partner), colour: themeColour("first") }].filter(({ place }) => place >= 0),
      isOff: (place) => isOff(ablation, this.layer, this.pair(place)[0]) || ablation.layers.has(this.layer),
    });
    this.describe();
  }

  matrix() {
    const { modes, internals } = this.store;
    const size = modes.perHead;
    const start = (this.layer * modes.numHeads + this.head) * size * size;
    return {
      columns: size, rows: size, values: internals.arrays.coupling.data.subarray(start, start + size * size),
      across: "from mode", up: "to mode", acrossTicks: ordinals(size), upTicks: ordinals(size),
      units: "attention", name: "Coupling:",
      describe: (place) => `to mode ${Math.floor(place / size) + 1} from mode ${(place % size) + 1}`,
      placeOf: (mode, partner) => (partner === null ? -1 : (mode % size) * size + (partner % size)),
    };
  }

  responses() {
    const { modes, internals } = this.store;
    const all = internals.arrays.response.data.subarray(this.layer * modes.count, (this.layer + 1) * modes.count);
    const places = Array.from({ length: modes.columns * modes.rows }, (_, place) => modes.modeAt(place));
    return {
      ...modes.labels(), columns: modes.columns, rows: modes.rows, values: places.map((mode) => all[mode]),
      units: "|response|", name: "Response:", describe: (place) => modes.name(places[place]),
      placeOf: (mode) => modes.placeOf(mode),
    };
  }

  describe() {
    const { modes, mode, partner } = this.store;
    element("coupling-seen").textContent = modes.isPaper
      ? `Attention between the modes of head ${this.head + 1} in layer ${this.layer + 1}. Click a cell to show both windows.`
      : `Factor by which layer ${this.layer + 1} multiplies each wave (RMS over channels). Click a cell to show cosine and sine.`;
    const colours = [themeColour("first"), themeColour("second")];
    const names = partner === null ? [modes.name(mode)]
      : modes.isPaper ? [`to mode ${(mode % modes.perHead) + 1}`, `from mode ${(partner % modes.perHead) + 1}`]
      : [`${modes.name(mode)}: cosine`, "sine"];
    const swatches = names.map((name) => make("span", { className: "swatch", textContent: name }));
    swatches.forEach(({ style }, n) => style.setProperty("border-color", colours[n]));
    element("chosen").replaceChildren(...swatches);
  }
}
