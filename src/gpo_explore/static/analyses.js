// The panels that analyse a run, a field or a point, and their settings.

import { ComparePanel } from "./comparepanel.js";
import { MixturePanel } from "./mixturepanel.js";
import { NearbyPanel } from "./nearbypanel.js";
import { RankingPanel } from "./rankingpanel.js";
import { SpectrumPanel } from "./spectrumpanel.js";
import { TypicalPanel } from "./typicalpanel.js";

export const ANALYSIS_SETTINGS = { showsMixture: false, mixtureSize: 50, showsNearby: true, rankedKind: "all" };

export class Analyses {
  constructor(store, field) {
    this.mixture = new MixturePanel(store, field);
    this.nearby = new NearbyPanel(store, field);
    this.spectrum = new SpectrumPanel(store);
    this.compare = new ComparePanel(store);
    this.ranking = new RankingPanel(store);
    this.typical = new TypicalPanel(store);
  }

  // Loads what the address requests first, then the panels in the order of their cost.
  async begin() {
    this.mixture.loadSoon();
    await Promise.all([this.nearby.load(), this.spectrum.load()]);
    await this.compare.begin();
    await this.ranking.begin();
    await this.typical.begin();
  }
}
