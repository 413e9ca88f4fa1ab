// The controls below the field: pointer tools, windows, particles, coastlines and colours.

import { checkbox, fillSelect, isSeries, markSelected, radios } from "./controls.js";
import { element } from "./store.js";

export function setUpFieldTools(store, view) {
  const { reasons, operator } = store.run;
  const tools = [
    { value: "ask", text: "Query" },
    { value: "paint", text: "Mask", reason: reasons.ablation },
    { value: "look", text: "Pan" },
  ];
  const buttons = radios("tool", tools, store.tool, (tool) => store.set({ tool }));
  const update = () => {
    markSelected(buttons, store.tool);
    document.body.dataset.tool = store.tool;
    element("brush-label").classList.toggle("idle", store.tool !== "paint");
  };
  store.on(["tool"], update);
  update();
  element("brush").addEventListener("input", (event) => store.set({ brush: Number(event.target.value) }));
  element("zoom-in").addEventListener("click", () => view.zoom(1 / 1.5));
  element("zoom-out").addEventListener("click", () => view.zoom(1.5));
  element("zoom-home").addEventListener("click", () => view.home());
  checkbox(store, "fit-colours", "fitsColours");
  checkbox(store, "smooth", "isSmooth");
  checkbox(store, "show-windows", "showsWindows", reasons.modes);
  checkbox(store, "show-particles", "showsParticles", reasons.particles);
  checkbox(store, "show-coast", "showsCoast");
  store.on(["geometry"], () => (element("coast-label").hidden = !store.geometry.is_sphere && !store.run.coast.length));
  setUpParticles(store, operator);
  setUpInputs(store);
}

// The input of a time series may have several frames, that of a static map several variables.
function setUpInputs(store) {
  const { history, inputs } = store.run;
  const frames = Array.from({ length: history }, (_, n) => `frame ${n + 1} of ${history}`);
  const names = isSeries(store.run) ? frames : inputs.map(({ name }) => name);
  fillSelect("given", names);
  const select = element("given");
  select.addEventListener("change", () => store.set({ given: Number(select.value) }));
  const update = () => {
    select.value = store.given;
    select.hidden = store.shown !== "given" || names.length < 2;
  };
  store.on(["shown", "given"], update);
  update();
}

function setUpParticles(store, operator) {
  const count = operator?.num_gaussians ?? 0;
  const numbers = Array.from({ length: count }, (_, n) => n);
  const isMoving = operator?.variant === "geometric";
  const kind = isMoving ? "particle" : "Gaussian";
  fillSelect("gaussian", ["heaviest", ...numbers.map((n) => `${kind} ${n + 1}`)], [-1, ...numbers]);
  // Arrows always have the length of the displacements.
  element("particle-size-label").hidden = isMoving;
  const state = isMoving ? "energy Σ h²" : "basis z";
  fillSelect("particle-colour", operator?.num_layers ? ["weight", state] : ["weight"], ["weight", "layer"]);
  const selects = [["gaussian", "gaussian"], ["particle-colour", "particleColour"], ["particle-size", "particleSize"]];
  for (const [id, name] of selects) {
    const select = element(id);
    select.addEventListener("change", () => store.set({ [name]: name === "particleColour" ? select.value : Number(select.value) }));
    const update = () => (select.value = store[name] ?? 1);
    store.on([name], update);
    update();
  }
  const settings = element("particle-settings");
  const show = () => settings.classList.toggle("idle", !store.showsParticles);
  store.on(["showsParticles"], show);
  show();
}
