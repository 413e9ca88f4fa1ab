// The page: controls change settings, requests follow the settings, panels draw the answers.

import { NO_ABLATION } from "./ablation.js";
import { Address, readFrom } from "./address.js";
import { isSeries, setUpControls } from "./controls.js";
import { CouplingPanel } from "./couplingpanel.js";
import { FieldPanel } from "./fieldpanel.js";
import { FlowPanel } from "./flowpanel.js";
import { LayerPanel } from "./layerpanel.js";
import { Loader } from "./loader.js";
import { ModePanel } from "./modepanel.js";
import { Modes } from "./modes.js";
import { OffPanel } from "./offpanel.js";
import { drawOutsidePanels } from "./outsidepanels.js";
import { showError } from "./problem.js";
import { ANALYSIS_SETTINGS, Analyses } from "./analyses.js";
import { RolloutPanel } from "./rolloutpanel.js";
import { copyLink, saveNetcdf, savePng } from "./save.js";
import { element, Store } from "./store.js";
import { runMetadata } from "./requests.js";

// Returns the settings of a newly opened page.
function defaultSettings(run) {
  return {
    ...ANALYSIS_SETTINGS,
    ablation: NO_ABLATION, example: 0, variable: 0, shown: "compare", given: isSeries(run) ? run.history - 1 : 0,
    tool: "ask", brush: 5, point: null, layer: run.operator?.num_layers ? 1 : 0, mode: null, partner: null, third: 0,
    step: 1, modesColour: "energy", showsWindows: false, showsParticles: false, showsCoast: run.is_earth,
    advector: null, flowSpeed: 2, tracers: [], gaussian: -1, particleColour: "weight", particleSize: null, fitsColours: true, isSmooth: true,
  };
}

// Answers of the server, and objects derived from them.
const ANSWERS = {
  geometry: null, box: null, frames: null, prediction: null, internals: null, windows: [], cloud: null,
  dependence: null, value: null, rollout: null, coast: null, strongest: null, theme: 0, view: {},
};

async function start() {
  const run = await runMetadata();
  const defaults = defaultSettings(run);
  const modes = run.operator?.num_layers ? new Modes(run.operator) : null;
  const store = new Store({ run, modes, ...ANSWERS, ...defaults, ...readFrom(window.location.hash.slice(1), run) });
  document.addEventListener("themechange", () => store.set({ theme: store.theme + 1 }));
  const address = new Address(store, defaults);
  const loader = new Loader(store);
  const field = new FieldPanel(store);
  const panels = [FlowPanel, ModePanel, CouplingPanel, LayerPanel, OffPanel, RolloutPanel].map((Panel) => new Panel(store));
  setUpControls(store);
  const analyses = new Analyses(store, field);
  const actions = { "save-png": () => savePng(store, field), "save-netcdf": () => saveNetcdf(store), "copy-link": () => copyLink(address) };
  for (const [id, act] of Object.entries(actions)) {
    element(id).addEventListener("click", () => act().catch((error) => showError(id, error)));
  }
  await loader.begin();
  document.documentElement.dataset.ready = "true";
  drawOutsidePanels(store);
  await panels.at(-1).load();
  await analyses.begin();
}

start().catch((error) => showError("run", error));
