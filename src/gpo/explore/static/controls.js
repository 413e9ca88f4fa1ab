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
  setUpSlices(store);
  store.on(["prediction"], () => {
    const { metadata, milliseconds } = store.prediction;
    element("timing").textContent =
      `model ${Math.round(1000 * metadata.seconds)} ms, answered in ${Math.round(milliseconds)} ms`;
  });
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
    slider.value = Math.min(Number(slider.value), numbers.length - 1);
    follow();
  };
  const follow = () => {
    const example = numbers[Number(slider.value)];
    const { label, sample } = run.examples[example];
    const text = isSeries(run) ? label : `sample ${sample}`;
    element("time-text").textContent = text;
    slider.setAttribute("aria-valuetext", text);
    store.set({ example });
  };
  element("trajectory").addEventListener("change", (event) => enter(Number(event.target.value)));
  slider.addEventListener("input", follow);
  player(element("play-time"), slider, 350);
  enter(trajectories[0]);
}

function setUpSlices(store) {
  store.on(["geometry"], () => {
    const { geometry } = store;
    const isSpace = geometry.numAxes === 3;
    element("slice-axis-label").hidden = element("slice-label").hidden = !isSpace;
    if (isSpace && !element("slice-axis").options.length) {
      fill("slice-axis", geometry.names);
      element("slice-axis").value = "2";
    }
    if (isSpace) cut();
  });
  const cut = () => {
    const axis = Number(element("slice-axis").value);
    store.geometry.cut(axis, Number(element("slice").value));
    store.set({ box: store.geometry.homeBox() });
  };
  element("slice-axis").addEventListener("change", cut);
  element("slice").addEventListener("input", cut);
}
