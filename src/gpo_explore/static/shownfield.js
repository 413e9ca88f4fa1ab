// The shown field: its values at the sites, colour scale, units and name.

import { rangeOf, robustRange, scaleOf, signedScale } from "./colours.js";
import { isSeries } from "./controls.js";
import { column } from "./store.js";

export const DESCRIPTIONS = {
  compare: "The prediction, the truth, and their difference.",
  given: "The input of the model.",
  predicted: "The prediction of the model, without the ablated parts.",
  truth: "The true field at the time of the prediction.",
  error: "Prediction minus truth, in the units of the variable.",
  change: "Prediction of the ablated model minus that of the full model.",
  window: "The window of the selected mode.",
  dependence: "Gradient × input: the contribution of each site to the prediction at the crosshair.",
};

export const TITLES = {
  given: "Input", predicted: "Predicted", truth: "Truth", error: "Predicted − truth", change: "Change by ablation",
  window: "Window", dependence: "Attribution",
};

// Returns why a field cannot be shown yet; null if it can.
export function missing(store, shown) {
  if (shown === "dependence" && !store.dependence) return "Query a point first: select the tool Query, then click a picture.";
  if (shown === "window" && !store.windows.length) return "The window of the selected mode is loading.";
  return null;
}

// Returns {shown, name, units, values, scale}, and for a prediction the truth.
export function fieldOf(store, shown) {
  const { run, frames, prediction, geometry, variable } = store;
  const output = run.outputs[variable];
  const result = { shown, units: labelOf(output), name: output.name };
  if (shown === "given") return { ...result, ...inputField(store) };
  const truth = column(frames.arrays.truth, variable);
  const predicted = column(prediction.arrays.predicted, variable);
  const scale = () => scaleFor(store, output, [predicted, truth]);
  if (shown === "truth") return { ...result, values: truth, scale: scale() };
  if (shown === "predicted") return { ...result, values: predicted, scale: scale(), truth };
  if (shown === "window") {
    const [window] = store.windows;
    const units = run.operator.variant === "paper" ? "weight p" : "cosine";
    return { ...result, values: window, scale: scaleOf(...rangeOf(window, geometry.active)), units, name: "window" };
  }
  let values = store.dependence?.arrays.regions.data;
  if (shown !== "dependence") {
    const other = shown === "error" ? truth : column(frames.arrays.whole, variable);
    values = predicted.map((value, n) => value - other[n]);
  }
  return { ...result, values, scale: signedScale(values, geometry.active) };
}

function inputField({ run, frames, variable, given: index, ...store }) {
  const [number, frame] = isSeries(run) ? [variable, index] : [index, 0];
  const input = run.inputs[number];
  const values = column(frames.arrays.given, number, frame);
  return { values, scale: scaleFor(store, input, [values]), units: labelOf(input), name: input.name };
}

export const labelOf = ({ name, units }) => units || name;

// Returns the colour scale of the shown fields, or that of the whole test split.
export function scaleFor({ fitsColours, geometry }, variable, fields) {
  return scaleOf(...(fitsColours ? robustRange(fields, geometry.active) : variable.range));
}
