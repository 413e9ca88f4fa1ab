// Modes by modes of one head, or the size of the response by wave vector.

import { CellMap } from "./cells.js";
import { endsOf, SEQUENTIAL } from "./colours.js";
import { fill } from "./controls.js";
import { counted } from "./modes.js";
import { themeColour } from "./picture.js";
import { isOff, toggledModes } from "./ablation.js";
import { element } from "./store.js";

export class CouplingPanel {
  constructor(store) {
    this.store = store;
    const { modes, run } = store;
    if (run.reasons.coupling || !modes) {
      element("coupling-seen").textContent = run.reasons.coupling ?? "A model without layers has no coupling.";
      element("head-label").hidden = element("coupling").hidden = true;
      return;
    }
    this.map = new CellMap(element("coupling"), {
      onChoose: (place) => this.choose(place),
      onToggle: (place) => this.toggle(place),
    });
    element("head-label").hidden = !modes.isPaper;
    fill("head", counted(modes.numHeads));
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

  // Returns the modes of a cell: who receives and who gives; of a wave, itself.
  pair(place) {
    const { modes } = this.store;
    if (!modes.isPaper) return [modes.modeAt(place), modes.modeAt(place)];
    const first = this.head * modes.perHead;
    return [first + Math.floor(place / modes.perHead), first + (place % modes.perHead)];
  }

  choose(place) {
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
    const [low, high] = endsOf(content.values);
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
      across: "from mode", up: "to mode", acrossTicks: counted(size), upTicks: counted(size),
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
      ? `What modes of head ${this.head + 1} take from each other in layer ${this.layer + 1}; click shows both windows.`
      : `By how much layer ${this.layer + 1} multiplies every wave, RMS over its fields; click to see cosine and sine.`;
    const chosen = element("chosen");
    const colours = [themeColour("first"), themeColour("second")];
    const names = partner === null ? [modes.name(mode)]
      : modes.isPaper ? [`to mode ${(mode % modes.perHead) + 1}`, `from mode ${(partner % modes.perHead) + 1}`]
      : [`${modes.name(mode)}: cosine`, "sine"];
    chosen.replaceChildren(
      ...names.map((name, n) => {
        const part = document.createElement("span");
        part.className = "swatch";
        part.style.setProperty("border-color", colours[n]);
        part.textContent = name;
        return part;
      }),
    );
  }
}
