// A long request: it can be stopped, reports its progress, and is aborted by the next one.

import { postForBytes, progress, unpack } from "./requests.js";

const POLL_INTERVAL = 400;

export class LongRequest {
  // onProgress is called with {done, total, text} at intervals while the answer is pending.
  constructor(panel, onProgress = null) {
    this.panel = panel;
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

  // Resolves to null if it was stopped, or replaced by another request.
  async send(body) {
    this.stop();
    const controller = new AbortController();
    this.controller = controller;
    const timer = this.onProgress && setInterval(() => this.poll(controller), POLL_INTERVAL);
    try {
      const answer = unpack(await postForBytes(this.panel, body, { signal: controller.signal, isQuiet: true }));
      return controller.signal.aborted ? null : answer;
    } catch (error) {
      if (controller.signal.aborted) return null;
      throw error;
    } finally {
      clearInterval(timer);
      if (this.controller === controller) this.controller = null;
    }
  }

  async poll(controller) {
    const byPanel = await progress().catch(() => ({}));
    if (controller !== this.controller || !byPanel[this.panel]) return;
    const [done, total, text] = byPanel[this.panel];
    this.onProgress({ done, total, text });
  }
}
