// Sends the requests that the settings need, and puts the answers into the store.

import { Geometry } from "./geometry.js";
import { ParticleCloud } from "./particles.js";
import { showError } from "./problem.js";
import { ablationBody } from "./ablation.js";
import { post, LatestRequest } from "./requests.js";

export class Loader {
  constructor(store) {
    this.store = store;
    const names = ["sites", "frames", "prediction", "internals", "particles", "value", "dependence"];
    this.latest = Object.fromEntries(names.map((name) => [name, new LatestRequest(name)]));
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

  // Returns the answer of a panel; null after an error, which is shown, or if a later request replaced it.
  async answer(panel, body) {
    try {
      const answer = await this.latest[panel].send(body);
      if (answer) showError(panel, null);
      return answer;
    } catch (error) {
      showError(panel, error);
      return null;
    }
  }

  async fields() {
    const { store } = this;
    const { example } = store;
    const sites = await this.answer("sites", { example: store.run.sites_vary ? example : 0 });
    if (sites && sites !== this.sites) {
      this.sites = sites;
      const geometry = new Geometry(sites);
      const { slice, box } = store.view;
      if (slice && geometry.numAxes === 3) geometry.setSlice(slice.axis, slice.fraction);
      store.set({ geometry, box: box ?? geometry.homeBox(), view: {} });
    }
    const frames = await this.answer("frames", { example });
    if (frames) store.set({ frames });
  }

  async prediction() {
    const { example, ablation } = this.store;
    const prediction = await this.answer("prediction", { example, ablation: ablationBody(ablation) });
    if (prediction) this.store.set({ prediction });
  }

  async internals() {
    if (!this.store.run.operator) return;
    const { example, ablation } = this.store;
    const internals = await this.answer("internals", { example, ablation: ablationBody(ablation) });
    if (internals) this.store.set({ internals });
  }

  async particles() {
    const { store } = this;
    if (!store.showsParticles) {
      store.set({ cloud: null });
      return;
    }
    const body = { example: store.example, ablation: ablationBody(store.ablation) };
    const answer = await this.answer("particles", body);
    if (!answer) return;
    const cloud = new ParticleCloud(answer);
    store.set({ cloud, particleSize: store.particleSize ?? cloud.suitableSize(store.geometry) });
  }

  async windows() {
    const { store } = this;
    if (!store.modes || store.mode === null) return;
    const { example, layer, mode, partner } = store;
    // A window that is shown as the field is needed even without outlines.
    const isNeeded = store.showsWindows || store.shown === "window";
    const key = JSON.stringify([example, layer, mode, partner, isNeeded]);
    if (key === this.windowKey) return;
    this.windowKey = key;
    const windowOf = (number) => post("window", { example, layer: Math.max(0, layer - 1), mode: number });
    try {
      const windows = isNeeded ? await this.pairOfWindows(windowOf, mode, partner) : [];
      if (this.windowKey === key) store.set({ windows });
      showError("window", null);
    } catch (error) {
      showError("window", error);
    }
  }

  // Returns the cosine of a wave, and its sine if both are shown; else the windows of one or two modes.
  async pairOfWindows(windowOf, mode, partner) {
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
    const body = { example, ablation: ablationBody(ablation), point, variable };
    const dependence = await this.answer("dependence", body);
    if (dependence) store.set({ dependence });
    if (store.run.reasons.value) return;
    const value = await this.answer("value", body);
    if (value) store.set({ value });
  }
}
