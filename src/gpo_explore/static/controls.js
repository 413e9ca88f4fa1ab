// The settings at the top and in the panels, and buttons that play a slider.

import { element } from "./store.js";

export function setUpControls(store) {
  const { run } = store;
  element("run-name").textContent = run.name;
  document.title = `gpo explore: ${run.name}`;
  const sites = run.num_sites.toLocaleString("en");
  const weights = run.num_parameters.toLocaleString("en");
  element("run-metadata").textContent = `${run.model}; ${weights} parameters; ${sites} sites of ${run.source}`;
  setUpTime(store);
  fill("variable", run.outputs.map(({ name, units }) => (units ? `${name} (${units})` : name)));
  element("variable").addEventListener("change", (event) => store.set({ variable: Number(event.target.value) }));
  const follow = () => (element("variable").value = store.variable);
  store.on(["variable"], follow);
  follow();
  setUpSlices(store);
  store.on(["prediction"], () => {
    element("timing").textContent = timing(store.prediction);
  });
}

// Returns how long the model took when it ran; an answer that came sooner was kept from then.
export function timing({ metadata, milliseconds }) {
  const [model, answer] = [1000 * metadata.seconds, milliseconds].map((time) => `${Math.max(1, Math.round(time))} ms`);
  const isKept = milliseconds < 1000 * metadata.seconds;
  return `model ${model}${isKept ? " (kept)" : ""}, answered in ${answer}`;
}

export const isSeries = (run) => run.examples[0].time !== undefined;

export function fill(id, texts, values) {
  element(id).replaceChildren(
    ...texts.map((text, n) => new Option(text, values ? values[n] : n)),
  );
}

// Buttons of which one is chosen; arrow keys choose the next.
export function radios(id, choices, chosen, choose) {
  const group = element(id);
  const buttons = choices.map(({ value, text, reason }) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: text, disabled: Boolean(reason), title: reason ?? "" });
    button.setAttribute("role", "radio");
    button.dataset.value = value;
    button.addEventListener("click", () => choose(value));
    return button;
  });
  group.replaceChildren(...buttons);
  group.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const able = buttons.filter((button) => !button.disabled);
    const next = able[(able.indexOf(document.activeElement) + step + able.length) % able.length];
    next.focus();
    next.click();
  };
  return markChosen(buttons, chosen);
}

export function markChosen(buttons, chosen) {
  for (const button of buttons) {
    const isChosen = button.dataset.value === String(chosen);
    button.setAttribute("aria-checked", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
  }
  return buttons;
}

// Makes a button move a slider on, from the start again after its end.
export function player(button, slider, pause) {
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "▶";
    button.setAttribute("aria-pressed", "false");
  };
  button.addEventListener("click", () => {
    if (timer) return stop();
    button.textContent = "❚❚";
    button.setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      const [low, high] = [Number(slider.min), Number(slider.max)];
      slider.value = Number(slider.value) >= high ? low : Number(slider.value) + 1;
      slider.dispatchEvent(new Event("input"));
    }, pause);
  });
  return stop;
}

function setUpTime(store) {
  const { run } = store;
  const trajectories = [...new Set(run.examples.map(({ trajectory }) => trajectory))];
  element("trajectory-label").hidden = trajectories.length < 2;
  element("time-name").textContent = isSeries(run) ? "Time" : "Sample";
  fill("trajectory", trajectories.map(String), trajectories);
  const slider = element("time");
  let numbers = [];
  const enter = (trajectory) => {
    numbers = run.examples.map((_, n) => n).filter((n) => run.examples[n].trajectory === trajectory);
    slider.max = numbers.length - 1;
  };
  const follow = () => {
    const { label, sample, trajectory } = run.examples[store.example];
    if (!numbers.includes(store.example)) enter(trajectory);
    element("trajectory").value = trajectory;
    slider.value = numbers.indexOf(store.example);
    const text = isSeries(run) ? label : `sample ${sample}`;
    element("time-text").textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  element("trajectory").addEventListener("change", (event) => {
    const place = Number(slider.value);
    enter(Number(event.target.value));
    store.set({ example: numbers[Math.min(place, numbers.length - 1)] });
  });
  slider.addEventListener("input", () => store.set({ example: numbers[Number(slider.value)] }));
  store.on(["example"], follow);
  player(element("play-time"), slider, 350);
  follow();
}

function setUpSlices(store) {
  const [choice, slider] = [element("slice-axis"), element("slice")];
  const follow = () => {
    const { geometry } = store;
    const isSpace = geometry.numAxes === 3;
    element("slice-axis-label").hidden = element("slice-label").hidden = !isSpace;
    if (!isSpace) return;
    if (!choice.options.length) fill("slice-axis", geometry.names);
    choice.value = geometry.slice.axis;
    slider.value = geometry.slice.fraction;
    const text = geometry.sliceWords;
    element("slice-text").textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  // Another place along the same axis shows the same part of the plane.
  const cut = () => {
    const { geometry, box } = store;
    const isSame = geometry.slice.axis === Number(choice.value);
    geometry.cut(Number(choice.value), Number(slider.value));
    store.set({ box: isSame ? { ...box } : geometry.homeBox() });
  };
  // A new box may be that of another slice.
  store.on(["geometry", "box"], follow);
  choice.addEventListener("change", cut);
  slider.addEventListener("input", cut);
}
