// Which field is shown: its values at the sites, the scale of its colours, its units and its name.

import { endsOf, fittedEnds, scaleOf, signedScale } from "./colours.js";
import { isSeries } from "./controls.js";
import { column } from "./store.js";

export const SEEN = {
  compare: "What the model predicts, what really followed, and the difference.",
  given: "What the model is given.",
  predicted: "What the model predicts, without the parts that are off.",
  truth: "What really followed.",
  error: "Prediction minus truth, in the units of the variable.",
  change: "The prediction with parts off minus the whole one.",
  window: "The chosen window: what its mode measures at every site.",
  dependence: "Gradient × input: what every site adds to the prediction at the cross.",
};

export const TITLES = {
  given: "Given", predicted: "Predicted", truth: "Truth", error: "Predicted − truth", change: "Change by what is off",
  window: "Window", dependence: "Depends on",
};

// Returns what is missing for a field to be shown, in words; null where nothing is.
export function missing(store, shown) {
  if (shown === "dependence" && !store.dependence) return "Ask a point first: the tool Ask, then a click.";
  if (shown === "window" && !store.windows.length) return "Choose a mode first: its window is on the way.";
  return null;
}

// Returns {shown, name, units, values, scale}, and the truth where it belongs beside.
export function fieldOf(store, shown) {
  const { run, frames, prediction, geometry, variable } = store;
  const output = run.outputs[variable];
  const result = { shown, units: labelOf(output), name: output.name };
  if (shown === "given") return { ...result, ...given(store) };
  const truth = column(frames.arrays.truth, variable);
  const predicted = column(prediction.arrays.predicted, variable);
  const scale = () => scaleFor(store, output, [predicted, truth]);
  if (shown === "truth") return { ...result, values: truth, scale: scale() };
  if (shown === "predicted") return { ...result, values: predicted, scale: scale(), truth };
  if (shown === "window") {
    const [window] = store.windows;
    const units = run.operator.variant === "paper" ? "weight p" : "cosine";
    return { ...result, values: window, scale: scaleOf(...endsOf(window, geometry.known)), units, name: "window" };
  }
  let values = store.dependence?.arrays.regions.data;
  if (shown !== "dependence") {
    const other = shown === "error" ? truth : column(frames.arrays.whole, variable);
    values = predicted.map((value, n) => value - other[n]);
  }
  return { ...result, values, scale: signedScale(values, geometry.known) };
}

function given({ run, frames, variable, given: chosen, ...store }) {
  const [number, frame] = isSeries(run) ? [variable, chosen] : [chosen, 0];
  const input = run.inputs[number];
  const values = column(frames.arrays.given, number, frame);
  return { values, scale: scaleFor(store, input, [values]), units: labelOf(input), name: input.name };
}

export const labelOf = ({ name, units }) => units || name;

// Returns colours that fit what is shown, or those of the whole test split.
export function scaleFor({ fitsColours, geometry }, variable, fields) {
  return scaleOf(...(fitsColours ? fittedEnds(fields, geometry.known) : variable.range));
}
