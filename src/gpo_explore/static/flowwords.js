// What the panel of the flow says: captions, steps, pace, tracers, and what is under the pointer.

import { short } from "./colours.js";
import { legend } from "./legend.js";
import { themeColour } from "./picture.js";
import { element } from "./store.js";

export const HINT = "Click a picture to drop a tracer: the rollout takes it along, step by step.";
const STREAKS = "Streaks follow the displacement that the model learned: from where what arrives at a site came, to the site.";
const LINE = "On a line nothing streams to the side: time runs upwards, and every line is a point that the model carries through its rollout.";

const rounded = (value) => short(Number(value.toPrecision(2)));

// Describes what a panel shows: {store, flow, tracers, isLine, sides, numbers, carrier, shownStep, numSteps}
export function describe(panel) {
  const { metadata } = panel.flow;
  const { labels, units } = metadata;
  const { sliceWords } = panel.store.geometry;
  const slice = sliceWords && ` Of three dimensions, the part within the slice at ${sliceWords}.`;
  element("flow-seen").textContent = panel.isLine ? LINE : `${STREAKS}${slice}`;
  const when = labels.length > 1 ? labels.join(" → ") : "";
  const size = (name) => `, ${rounded(metadata.rms[name])}${units === "°" ? "°" : units ? ` ${units}` : ""} a step`;
  const mine = `${panel.numbers.name(panel.carrier)}${size("model")}`;
  caption("flow", panel.isLine ? "Where the model carries points " : "Learned motion ", panel.isLine || !when ? mine : `${mine}, ${when}`);
  if (panel.sides.length > 1) caption("flow-true", "True flow ", `${metadata.known_by}${metadata.scaled ? "" : size("true")}`);
  const slider = element("flow-step");
  slider.max = panel.numSteps;
  slider.value = panel.shownStep;
  slider.disabled = element("play-flow").disabled = panel.numSteps < 2;
  const text = `${panel.shownStep} of ${panel.numSteps}${when ? `: ${when}` : ""}`;
  element("flow-step-text").textContent = text;
  slider.setAttribute("aria-valuetext", text);
  describeTracers(panel);
}

// Says how fast streaks run; both sides have one clock unless one of them would stand still or race.
export function describePace({ paces, isLine, flow, sides, speed }) {
  if (!paces || isLine) return;
  const [pace, , factor] = paces;
  const { scaled } = flow.metadata;
  const faster = ` The true flow is ${rounded(1 / factor)} × as fast, and shown at the pace of the learned motion.`;
  const other = sides.length < 2 ? "" : scaled ? ` ${scaled}` : factor === 1 ? " Both have one clock." : faster;
  element("flow-pace").textContent = `At this speed a second shows ${rounded(pace * speed)} steps.${other}`;
}

function describeTracers({ tracers, isLine, store }) {
  const hasTrue = Boolean(tracers?.arrays.true);
  legend("flow-legend", !tracers ? [] : [
    { text: isLine ? "carried by the model" : "tracers of the model", colour: themeColour("first") },
    ...(hasTrue ? [{ text: "in the true flow", colour: themeColour("second") }] : []),
  ]);
  const alone = tracers && !hasTrue ? "No velocity is known that could carry them beside it." : "";
  element("tracer-words").textContent = tracers?.metadata.words ?? alone;
  for (const id of ["drop-back", "drop-none"]) element(id).disabled = !store.tracers.length;
}

// Returns the motion under the pointer in words.
export function motionAt({ store: { geometry }, flow }, place, view) {
  const site = geometry.siteAt(...place);
  if (site < 0 || !geometry.known[site]) return `${view.words(place)}: nothing here`;
  const { units } = flow.metadata;
  const vector = ({ data, shape }) =>
    `(${Array.from({ length: shape[1] }, (_, axis) => short(data[site * shape[1] + axis])).join(", ")})`;
  const beside = flow.arrays.true ? `, true flow ${vector(flow.arrays.true)}` : "";
  return `${view.words(place)}: learned ${vector(flow.arrays.model)}${beside}${units ? ` ${units}` : ""} a step`;
}

function caption(id, title, rest) {
  const small = document.createElement("small");
  small.textContent = rest;
  element(`${id}-caption`).replaceChildren(title, small);
}
