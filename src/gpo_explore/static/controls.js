// The controls at the top of the page, and elements of controls: selects, radio buttons, players.

import { element, make } from "./store.js";

export function setUpControls(store) {
  const { run } = store;
  element("run-name").textContent = run.name;
  document.title = `gpo explore: ${run.name}`;
  const sites = run.num_sites.toLocaleString("en");
  const parameters = run.num_parameters.toLocaleString("en");
  element("run-metadata").textContent = `${run.model}; ${parameters} parameters; ${sites} sites of ${run.source}`;
  setUpTime(store);
  fillSelect("variable", run.outputs.map(({ name, units }) => (units ? `${name} (${units})` : name)));
  element("variable").addEventListener("change", (event) => store.set({ variable: Number(event.target.value) }));
  const update = () => (element("variable").value = store.variable);
  store.on(["variable"], update);
  update();
  setUpSlices(store);
  store.on(["prediction"], () => {
    element("timing").textContent = timing(store.prediction);
  });
}

// Returns the times of the model and of the answer; a faster answer than the model's is a cached one.
function timing({ metadata, milliseconds }) {
  const [model, answer] = [1000 * metadata.seconds, milliseconds].map((time) => `${Math.max(1, Math.round(time))} ms`);
  const isCached = milliseconds < 1000 * metadata.seconds;
  return `model ${model}${isCached ? " (cached)" : ""}, answered in ${answer}`;
}

export const isSeries = (run) => run.examples[0].time !== undefined;

export function fillSelect(id, texts, values) {
  element(id).replaceChildren(
    ...texts.map((text, n) => new Option(text, values ? values[n] : n)),
  );
}

// Keeps a checkbox and a setting in sync.
export function checkbox(store, id, name, reason) {
  const box = element(id);
  box.disabled = Boolean(reason);
  if (reason) box.title = reason;
  const update = () => (box.checked = store[name]);
  box.addEventListener("change", () => store.set({ [name]: box.checked }));
  store.on([name], update);
  update();
}

// Creates radio buttons; arrow keys select the next one. reason: why a choice is disabled.
export function radios(id, choices, selected, onSelect) {
  const group = element(id);
  const buttons = choices.map(({ value, text, reason }) => {
    const button = make("button", { type: "button", textContent: text, disabled: Boolean(reason), title: reason ?? "" });
    button.setAttribute("role", "radio");
    button.dataset.value = value;
    button.addEventListener("click", () => onSelect(value));
    return button;
  });
  group.replaceChildren(...buttons);
  group.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const enabled = buttons.filter((button) => !button.disabled);
    const next = enabled[(enabled.indexOf(document.activeElement) + step + enabled.length) % enabled.length];
    next.focus();
    next.click();
  };
  return markSelected(buttons, selected);
}

export function markSelected(buttons, selected) {
  for (const button of buttons) {
    const isSelected = button.dataset.value === String(selected);
    button.setAttribute("aria-checked", String(isSelected));
    button.tabIndex = isSelected ? 0 : -1;
  }
  return buttons;
}

// Makes a button advance a slider at intervals, in a loop.
export function player(button, slider, interval) {
  let timer = null;
  button.addEventListener("click", () => {
    const isPlaying = timer === null;
    button.textContent = isPlaying ? "❚❚" : "▶";
    button.setAttribute("aria-pressed", String(isPlaying));
    clearInterval(timer);
    timer = isPlaying ? setInterval(advance, interval) : null;
  });
  const advance = () => {
    slider.value = Number(slider.value) >= Number(slider.max) ? slider.min : Number(slider.value) + 1;
    slider.dispatchEvent(new Event("input"));
  };
}

function setUpTime(store) {
  const { run } = store;
  const trajectories = [...new Set(run.examples.map(({ trajectory }) => trajectory))];
  element("trajectory-label").hidden = trajectories.length < 2;
  element("time-name").textContent = isSeries(run) ? "Time" : "Sample";
  fillSelect("trajectory", trajectories.map(String), trajectories);
  const slider = element("time");
  let numbers = [];
  const selectTrajectory = (trajectory) => {
    numbers = run.examples.map((_, n) => n).filter((n) => run.examples[n].trajectory === trajectory);
    slider.max = numbers.length - 1;
  };
  const update = () => {
    const { label, sample, trajectory } = run.examples[store.example];
    if (!numbers.includes(store.example)) selectTrajectory(trajectory);
    element("trajectory").value = trajectory;
    slider.value = numbers.indexOf(store.example);
    const text = isSeries(run) ? label : `sample ${sample}`;
    element("time-text").textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  element("trajectory").addEventListener("change", (event) => {
    const index = Number(slider.value);
    selectTrajectory(Number(event.target.value));
    store.set({ example: numbers[Math.min(index, numbers.length - 1)] });
  });
  slider.addEventListener("input", () => store.set({ example: numbers[Number(slider.value)] }));
  store.on(["example"], update);
  player(element("play-time"), slider, 350);
  update();
}

function setUpSlices(store) {
  const [choice, slider] = [element("slice-axis"), element("slice")];
  const update = () => {
    const { geometry } = store;
    const isSpace = geometry.numAxes === 3;
    element("slice-axis-label").hidden = element("slice-label").hidden = !isSpace;
    if (!isSpace) return;
    if (!choice.options.length) fillSelect("slice-axis", geometry.names);
    choice.value = geometry.slice.axis;
    slider.value = geometry.slice.fraction;
    const text = geometry.sliceText;
    element("slice-text").textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  // A slice across the same axis keeps the zoom.
  const setSlice = () => {
    const { geometry, box } = store;
    const isSame = geometry.slice.axis === Number(choice.value);
    geometry.setSlice(Number(choice.value), Number(slider.value));
    store.set({ box: isSame ? { ...box } : geometry.homeBox() });
  };
  // Another slice comes with a new box.
  store.on(["geometry", "box"], update);
  choice.addEventListener("change", setSlice);
  slider.addEventListener("input", setSlice);
}
