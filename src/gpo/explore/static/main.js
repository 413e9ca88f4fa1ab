// The page: settings at the top, answers that follow them, panels that draw the answers.

import { isSeries, setUpControls } from "./controls.js";
import { CouplingPanel } from "./couplingpanel.js";
import { FieldPanel } from "./fieldpanel.js";
import { LayerPanel } from "./layerpanel.js";
import { Loads } from "./loads.js";
import { ModePanel } from "./modepanel.js";
import { Modes } from "./modes.js";
import { OffPanel } from "./offpanel.js";
import { complain } from "./problem.js";
import { RolloutPanel } from "./rolloutpanel.js";
import { saveNetcdf, savePng } from "./save.js";
import { NOTHING } from "./ablation.js";
import { element, Store } from "./store.js";
import { runMetadata } from "./wire.js";

function settings(run) {
  const { operator } = run;
  const hasLayers = Boolean(operator?.num_layers);
  const modes = hasLayers ? new Modes(operator) : null;
  return {
    run, modes, ablation: NOTHING, example: 0, variable: 0,
    shown: "predicted", given: isSeries(run) ? run.history - 1 : 0,
    tool: "ask", brush: 5, point: null, layer: hasLayers ? 1 : 0, mode: null, partner: null, third: 0,
    modesColour: "energy", showsWindows: true, showsParticles: false,
    gaussian: -1, particleColour: "weight", particleSize: null, fitsColours: false, theme: 0,
    geometry: null, box: null, frames: null, prediction: null, internals: null,
    windows: [], cloud: null, dependence: null, value: null,
  };
}

async function start() {
  const store = new Store(settings(await runMetadata()));
  document.addEventListener("themechange", () => store.set({ theme: store.theme + 1 }));
  const loads = new Loads(store);
  const field = new FieldPanel(store);
  for (const Panel of [ModePanel, CouplingPanel, LayerPanel, OffPanel, RolloutPanel]) new Panel(store);
  setUpControls(store);
  element("save-png").addEventListener("click", () => savePng(store, field).catch((error) => complain("png", error)));
  element("save-netcdf").addEventListener("click", () => saveNetcdf(store).catch((error) => complain("netcdf", error)));
  await loads.begin();
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => complain("run", error));
