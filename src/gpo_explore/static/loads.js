// Follows the settings: requests what they need from the server, and puts the answers into the store.

import { Geometry } from "./geometry.js";
import { ParticleCloud } from "./particles.js";
import { complain } from "./problem.js";
import { plain } from "./ablation.js";
import { ask, Latest } from "./wire.js";

export class Loads {
  constructor(store) {
    this.store = store;
    const names = ["sites", "frames", "prediction", "internals", "particles", "value", "dependence"];
    this.latest = Object.fromEntries(names.map((name) => [name, new Latest(name)]));
    store.on(["example"], () => this.fields());
    store.on(["example", "ablation"], () => this.prediction());
    store.on(["example", "ablation"], () => this.internals());
    store.on(["example", "ablation", "showsParticles"], () => this.particles());
    store.on(["example", "layer", "mode", "partner", "showsWindows", "shown"], () => this.windows());
    store.on(["example", "ablation", "point", "variable"], () => this.point());
  }

  async begin() {
    await this.fields();
    await this.prediction();
    await Promise.all([this.internals(), this.windows(), this.particles(), this.point()]);
  }

  // Asks; what goes wrong is shown. Returns null where a later request was made meanwhile.
  async answer(what, body) {
    try {
      const answer = await this.latest[what].ask(body);
      if (answer) complain(what, null);
      return answer;
    } catch (error) {
      complain(what, error);
      return null;
    }
  }

  async fields() {
    const { store } = this;
    const { example } = store;
    const where = await this.answer("sites", { example: store.run.sites_vary ? example : 0 });
    if (where && where !== this.where) {
      this.where = where;
      const geometry = new Geometry(where);
      const { slice, box } = store.view;
      if (slice && geometry.numAxes === 3) geometry.cut(slice.axis, slice.fraction);
      store.set({ geometry, box: box ?? geometry.homeBox(), view: {} });
    }
    const frames = await this.answer("frames", { example });
    if (frames) store.set({ frames });
  }

  async prediction() {
    const { example, ablation } = this.store;
    const prediction = await this.answer("prediction", { example, ablation: plain(ablation) });
    if (prediction) this.store.set({ prediction });
  }

  async internals() {
    if (!this.store.run.operator) return;
    const { example, ablation } = this.store;
    const internals = await this.answer("internals", { example, ablation: plain(ablation) });
    if (internals) this.store.set({ internals });
  }

  async particles() {
    const { store } = this;
    if (!store.showsParticles) {
      store.set({ cloud: null });
      return;
    }
    const body = { example: store.example, ablation: plain(store.ablation) };
    const answer = await this.answer("particles", body);
    if (!answer) return;
    const cloud = new ParticleCloud(answer);
    store.set({ cloud, particleSize: store.particleSize ?? cloud.suitableSize(store.geometry) });
  }

  async windows() {
    const { store } = this;
    if (!store.modes || store.mode === null) return;
    const { example, layer, mode, partner } = store;
    // A window that is shown as a field is needed whether or not it is outlined.
    const isNeeded = store.showsWindows || store.shown === "window";
    const wanted = JSON.stringify([example, layer, mode, partner, isNeeded]);
    if (wanted === this.wanted) return;
    this.wanted = wanted;
    const windowOf = (number) => ask("window", { example, layer: Math.max(0, layer - 1), mode: number });
    try {
      const windows = isNeeded ? await this.both(windowOf, mode, partner) : [];
      if (this.wanted === wanted) store.set({ windows });
      complain("window", null);
    } catch (error) {
      complain("window", error);
    }
  }

  // Of a wave the cosine, and the sine where both are shown; else the windows of two modes.
  async both(windowOf, mode, partner) {
    const { data, shape } = (await windowOf(mode)).arrays.window;
    const size = shape[1];
    const first = data.subarray(0, size);
    if (partner === null || (shape[0] === 1 && partner === mode)) return [first];
    if (shape[0] === 2) return [first, data.subarray(size, 2 * size)];
    return [first, (await windowOf(partner)).arrays.window.data];
  }

  async point() {
    const { store } = this;
    if (!store.point) {
      store.set({ dependence: null, value: null });
      return;
    }
    const { example, ablation, point, variable } = store;
    const body = { example, ablation: plain(ablation), point, variable };
    const dependence = await this.answer("dependence", body);
    if (dependence) store.set({ dependence });
    if (store.run.reasons.value) return;
    const value = await this.answer("value", body);
    if (value) store.set({ value });
  }
}
