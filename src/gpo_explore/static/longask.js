// A request that takes long: it can be stopped, tells how far it is, and the next one ends the last.

import { bytes, progress, unpack } from "./wire.js";

const PAUSE = 400;

export class LongAsk {
  // onProgress gets {done, of, text} now and then, while an answer is under way.
  constructor(what, onProgress = null) {
    this.what = what;
    this.onProgress = onProgress;
    this.controller = null;
  }

  get isBusy() {
    return this.controller !== null;
  }

  stop() {
    this.controller?.abort();
    this.controller = null;
  }

  // Resolves to null where it was stopped, or another request was made meanwhile.
  async ask(body) {
    this.stop();
    const controller = new AbortController();
    this.controller = controller;
    const timer = this.onProgress && setInterval(() => this.look(controller), PAUSE);
    try {
      const answer = unpack(await bytes(this.what, body, { signal: controller.signal, isQuiet: true }));
      return controller.signal.aborted ? null : answer;
    } catch (error) {
      if (controller.signal.aborted) return null;
      throw error;
    } finally {
      clearInterval(timer);
      if (this.controller === controller) this.controller = null;
    }
  }

  async look(controller) {
    const found = await progress().catch(() => ({}));
    if (controller !== this.controller || !found[this.what]) return;
    const [done, of, text] = found[this.what];
    this.onProgress({ done, of, text });
  }
}
