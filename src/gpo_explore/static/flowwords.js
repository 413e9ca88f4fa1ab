// Texts of the flow panel: captions, steps, pace, tracers, and the vectors at the pointer.

import { format } from "./colours.js";
import { legend } from "./legend.js";
import { themeColour } from "./picture.js";
import { element, make } from "./store.js";

export const HINT = "Click a picture to add a tracer, which the rollout advects step by step.";
const STREAKS = "Streaks follow the learned displacements, from the departure points of the particles to their sites.";
const LINE = "In one dimension there are no streaks: time runs upwards, and every line is the path of a tracer in the rollout.";

const rounded = (value) => format(Number(value.toPrecision(2)));

// Updates the texts of a panel: {store, flow, tracers, isLine, sides, numbers, advector, shownStep, numSteps}
export function describe(panel) {
  const { metadata } = panel.flow;
  const { labels, units } = metadata;
  const { sliceText } = panel.store.geometry;
  const slice = sliceText && ` The vectors are projected onto the slice at ${sliceText}.`;
  element("flow-seen").textContent = panel.isLine ? LINE : `${STREAKS}${slice}`;
  const times = labels.length > 1 ? labels.join(" → ") : "";
  const size = (name) => `, ${rounded(metadata.rms[name])}${units === "°" ? "°" : units ? ` ${units}` : ""} per step`;
  const particle = `${panel.numbers.name(panel.advector)}${size("model")}`;
  caption("flow", panel.isLine ? "Paths of tracers " : "Learned motion ", panel.isLine || !times ? particle : `${particle}, ${times}`);
  if (panel.sides.length > 1) caption("flow-true", "True flow ", `${metadata.known_by}${metadata.scaled ? "" : size("true")}`);
  const slider = element("flow-step");
  slider.max = panel.numSteps;
  slider.value = panel.shownStep;
  slider.disabled = element("play-flow").disabled = panel.numSteps < 2;
  const text = `${panel.shownStep} of ${panel.numSteps}${times ? `: ${times}` : ""}`;
  element("flow-step-text").textContent = text;
  slider.setAttribute("aria-valuetext", text);
  describeTracers(panel);
}

// Updates the text about the speed of the streaks.
export function describePace({ paces, isLine, flow, sides, speed }) {
  if (!paces || isLine) return;
  const [pace, , factor] = paces;
  const { scaled } = flow.metadata;
  const faster = ` The true flow is ${rounded(1 / factor)} × as fast, but shown at the speed of the learned motion.`;
  const other = sides.length < 2 ? "" : scaled ? ` ${scaled}` : factor === 1 ? " Both pictures have the same time scale." : faster;
  element("flow-pace").textContent = `${rounded(pace * speed)} steps per second.${other}`;
}

function describeTracers({ tracers, store }) {
  const hasTrue = Boolean(tracers?.arrays.true);
  legend("flow-legend", !tracers ? [] : [
    { text: "tracers of the model", colour: themeColour("first") },
    ...(hasTrue ? [{ text: "tracers in the true flow", colour: themeColour("second") }] : []),
  ]);
  const reason = tracers && !hasTrue ? "There is no true velocity to compare with." : "";
  element("tracer-words").textContent = tracers?.metadata.words ?? reason;
  for (const id of ["drop-back", "drop-none"]) element(id).disabled = !store.tracers.length;
}

// Returns the text of the vectors at the pointer.
export function motionAt({ store: { geometry }, flow }, position, view) {
  const site = geometry.siteAt(...position);
  if (site < 0 || !geometry.active[site]) return `${view.describe(position)}: no data`;
  const { units } = flow.metadata;
  const vector = ({ data, shape }) =>
    `(${Array.from({ length: shape[1] }, (_, axis) => format(data[site * shape[1] + axis])).join(", ")})`;
  const truth = flow.arrays.true ? `, true flow ${vector(flow.arrays.true)}` : "";
  return `${view.describe(position)}: learned ${vector(flow.arrays.model)}${truth}${units ? ` ${units}` : ""} per step`;
}

function caption(id, title, textContent) {
  element(`${id}-caption`).replaceChildren(title, make("small", { textContent }));
}
