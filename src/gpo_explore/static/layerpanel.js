// The activation after every layer, as an animation.

import { format, rangeOf, SEQUENTIAL } from "./colours.js";
import { player } from "./controls.js";
import { setSwitch } from "./modepanel.js";
import { Picture } from "./picture.js";
import { toggledLayer } from "./ablation.js";
import { element } from "./store.js";

export class LayerPanel {
  constructor(store) {
    this.store = store;
    const count = store.run.operator?.num_layers ?? 0;
    const [slider, off] = [element("layer"), element("off-layer")];
    if (store.run.reasons.layers || !count) {
      element("layers-seen").textContent = store.run.reasons.layers ?? "This model has no layers.";
      for (const id of ["layer", "off-layer", "play-layer"]) element(id).disabled = true;
      element("layers").hidden = true;
      return;
    }
    this.picture = new Picture(element("layers"), { isBare: true });
    slider.max = count;
    slider.addEventListener("input", () => store.set({ layer: Number(slider.value) }));
    off.addEventListener("click", () => store.set({ ablation: toggledLayer(store.ablation, this.number) }));
    player(element("play-layer"), slider, 700);
    store.on(["layer", "internals", "box", "theme"], () => this.draw());
    store.on(["layer", "ablation"], () => this.label());
    this.label();
  }

  get number() {
    return Math.max(0, this.store.layer - 1);
  }

  draw() {
    const { store } = this;
    const { internals, geometry, box, layer } = store;
    if (!internals || !geometry) return;
    const { data, shape } = internals.arrays.activation;
    if (shape[1] !== geometry.numSites) return;
    const values = data.subarray(layer * shape[1], (layer + 1) * shape[1]);
    const [low, high] = rangeOf(values, geometry.active);
    const scale = { limits: high > low ? [Math.min(0, low), high] : [low, low + 1], palette: SEQUENTIAL };
    const isPaper = store.run.operator.variant === "paper";
    const symbol = isPaper ? "Σ z²" : "Σ h²";
    this.picture.show({ geometry, box, values, scale, units: symbol });
    element("layer").value = layer;
    const first = isPaper ? "encoder" : "lift";
    const text = layer === 0 ? first : `${layer} of ${shape[0] - 1}`;
    element("layer-text").textContent = text;
    element("layer").setAttribute("aria-valuetext", text);
    element("layers-seen").textContent =
      `Energy ${symbol} of the ${isPaper ? "basis" : "hidden state"} at every site, ` +
      `${layer === 0 ? "before the first layer" : `after layer ${layer}`}.`;
    element("layers").setAttribute("aria-label", `Activation, ${text}: up to ${format(high)}`);
  }

  label() {
    setSwitch(element("off-layer"), `Layer ${this.number + 1}`, this.store.ablation.layers.has(this.number));
  }
}
