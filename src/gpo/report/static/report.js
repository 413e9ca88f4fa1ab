// Plays the frames of a rollout. Without this script the last frame is a still.
"use strict";

function start(player) {
  const stages = [...player.querySelectorAll(".stage")];
  const play = player.querySelector(".play");
  const position = player.querySelector(".position");
  const speed = player.querySelector(".speed");
  const variable = player.querySelector(".variable");
  const label = player.querySelector("output");
  const last = Number(position.max);
  let timer = null;

  function show(number) {
    const step = Math.min(Math.max(number, 0), last);
    position.value = String(step);
    for (const stage of stages) {
      const frames = stage.querySelectorAll(".frame");
      frames.forEach((frame, n) => { frame.hidden = n !== step; });
      if (!stage.hidden) label.textContent = frames[step].dataset.label;
    }
    position.setAttribute("aria-valuetext", label.textContent);
    player.dataset.step = String(step);
  }

  function next() {
    const step = Number(position.value);
    show(step === last ? 0 : step + 1);
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
    player.dataset.playing = "false";
  }

  function run() {
    clearInterval(timer);
    timer = setInterval(next, 1000 / Number(speed.value));
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    player.dataset.playing = "true";
  }

  function toggle() {
    if (timer !== null) { pause(); return; }
    next();
    run();
  }

  function goTo(number) {
    pause();
    show(number);
  }

  function faster(change) {
    const chosen = speed.selectedIndex + change;
    speed.selectedIndex = Math.min(Math.max(chosen, 0), speed.options.length - 1);
    if (timer !== null) run();
  }

  const keys = {
    " ": toggle,
    ArrowLeft: () => goTo(Number(position.value) - 1),
    ArrowRight: () => goTo(Number(position.value) + 1),
    Home: () => goTo(0),
    End: () => goTo(last),
    "+": () => faster(1),
    "-": () => faster(-1),
  };

  play.addEventListener("click", toggle);
  position.addEventListener("input", () => goTo(Number(position.value)));
  speed.addEventListener("change", () => { if (timer !== null) run(); });
  if (variable !== null) {
    variable.addEventListener("change", () => {
      stages.forEach((stage, n) => { stage.hidden = n !== Number(variable.value); });
      show(Number(position.value));
    });
  }
  player.addEventListener("keydown", (event) => {
    const action = keys[event.key];
    const isChoice = event.target instanceof HTMLSelectElement;
    const isButton = event.target === play && event.key === " ";
    if (action === undefined || isChoice || isButton || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });

  for (const part of player.querySelectorAll(".controls, .keys")) part.hidden = false;
  pause();
  show(last);
  player.dataset.ready = "true";
}

document.querySelectorAll(".player").forEach(start);
