// The map of modes: their energy or contribution at the queried point; modes can be selected and ablated.

import { CellMap } from "./cells.js";
import { rangeOf, SEQUENTIAL, signedScale } from "./colours.js";
import { themeColour } from "./picture.js";
import { isOff, toggledModes } from "./ablation.js";
import { element } from "./store.js";

const FLOOR = -8;

export class ModePanel {
  constructor(store) {
    this.store = store;
    const { reasons } = store.run;
    if (reasons.modes || !store.modes) {
      element("modes-seen").textContent = reasons.modes ?? "A model without layers has no modes.";
      for (const id of ["off-mode", "off-group", "modes-colour"]) element(id).disabled = true;
      element("modes").hidden = true;
      return;
    }
    this.map = new CellMap(element("modes"), {
      onSelect: (place) => store.set({ mode: store.modes.modeAt(place), partner: null, showsWindows: true }),
      onToggle: (place) => this.toggle([store.modes.modeAt(place)]),
    });
    element("off-mode").addEventListener("click", () => this.toggle([store.mode]));
    element("off-group").addEventListener("click", () => this.toggle(store.modes.group(store.mode)));
    element("modes-colour").addEventListener("change", (event) => store.set({ modesColour: event.target.value }));
    this.setUpThird();
    store.on(["internals", "layer", "mode", "ablation", "modesColour", "dependence", "theme", "third"], () => this.draw());
  }

  setUpThird() {
    const { store } = this;
    const { waves } = store.modes;
    if (!waves || waves.limits.length < 3) return;
    element("third-label").hidden = false;
    const slider = element("third");
    slider.max = waves.limits[2];
    const updateText = () => (element("third-text").textContent = `along ${waves.names[2]}: ${slider.value}`);
    updateText();
    const setThird = (third) => {
      slider.value = third;
      updateText();
      store.modes.third = third;
      store.set({ third });
    };
    slider.addEventListener("input", () => setThird(Number(slider.value)));
    // Shows the slice of a mode that is selected elsewhere.
    store.on(["mode"], () => store.mode !== null && setThird(store.modes.indices(store.mode)[2]));
  }

  get layer() {
    return Math.max(0, this.store.layer - 1);
  }

  // Switches modes off or on again, in this layer or in all layers.
  toggle(modes) {
    const { store } = this;
    const isInAll = element("every-layer").checked;
    const layers = isInAll ? Array.from({ length: store.run.operator.num_layers }, (_, n) => n) : [this.layer];
    const pairs = layers.flatMap((layer) => modes.map((mode) => [layer, mode]));
    store.set({ ablation: toggledModes(store.ablation, pairs) });
  }

  // Returns the mode with the largest energy; the constant wave is left out, since it has no structure.
  strongest() {
    const { modes, internals } = this.store;
    const energy = internals.arrays.tokens.data.subarray(0, modes.count);
    const varies = (mode) => modes.isPaper || modes.vector(mode).some((number) => number !== 0);
    return Array.from(energy.keys()).filter(varies).sort((a, b) => energy[b] - energy[a])[0] ?? 0;
  }

  draw() {
    const { store } = this;
    if (!store.internals) return;
    if (store.mode === null) {
      const mode = this.strongest();
      store.set({ mode, strongest: mode });
      return;
    }
    const { modes, mode, ablation } = store;
    const byContribution = store.modesColour === "dependence" && store.dependence;
    const source = byContribution ? store.dependence.arrays.modes.data : store.internals.arrays.tokens.data;
    const all = source.subarray(this.layer * modes.count, (this.layer + 1) * modes.count);
    const shown = byContribution ? all : all.map((energy) => Math.max(FLOOR, Math.log10(energy)));
    const places = Array.from({ length: modes.columns * modes.rows }, (_, place) => modes.modeAt(place));
    const values = places.map((number) => shown[number]);
    const [low, high] = rangeOf(shown);
    const output = store.run.outputs[store.variable];
    this.map.show({
      ...modes.labels(), columns: modes.columns, rows: modes.rows, values, name: "Modes:",
      scale: byContribution ? signedScale(all) : { limits: high > low ? [low, high] : [low - 1, low], palette: SEQUENTIAL },
      units: byContribution ? output.units || output.name : "log₁₀ E",
      marks: [{ place: modes.placeOf(mode), colour: themeColour("first") }].filter(({ place }) => place >= 0),
      isOff: (place) => isOff(ablation, this.layer, places[place]) || ablation.layers.has(this.layer),
      describe: (place) => modes.name(places[place]),
    });
    this.describe(byContribution);
  }

  describe(byContribution) {
    const { store } = this;
    const { modes, mode, ablation } = store;
    const kind = modes.isPaper ? "window of a head" : "wave vector";
    element("modes-seen").textContent = byContribution
      ? `Contribution of each ${kind} in layer ${this.layer + 1} to the prediction at the queried point.`
      : `Energy of each ${kind} in layer ${this.layer + 1}. Click to show it, shift-click to switch it off.`;
    const isModeOff = isOff(ablation, this.layer, mode);
    const group = modes.group(mode);
    const isGroupOff = group.every((other) => isOff(ablation, this.layer, other));
    setSwitch(element("off-mode"), modes.name(mode), isModeOff);
    setSwitch(element("off-group"), modes.groupName(mode), isGroupOff);
  }
}

export function setSwitch(button, name, isOffNow) {
  button.textContent = `${name} off`;
  button.setAttribute("aria-pressed", String(isOffNow));
}
