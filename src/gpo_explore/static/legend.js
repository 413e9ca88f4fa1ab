// Legends of lines, arrows and colours.

import { strip } from "./colourbar.js";
import { element, make } from "./store.js";

// items: {text, colour, style} for lines, {text, palette} for colours, {text, style: "hatched"} for areas.
export function legend(id, items) {
  const symbol = (item) => (item.palette ? gradient(item.palette) : mark(item));
  element(id).replaceChildren(...items.map((item) => make("span", { className: "item" }, symbol(item), item.text)));
}

function mark({ colour, style }) {
  const span = make("span", { className: `mark ${style ?? ""}` });
  if (colour) span.style.setProperty("border-color", colour);
  return span;
}

function gradient(palette) {
  const canvas = make("canvas", { width: palette.length, height: 1 });
  canvas.getContext("2d").drawImage(strip(palette, palette.length), 0, 0);
  return canvas;
}
