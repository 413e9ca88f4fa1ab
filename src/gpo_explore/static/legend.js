// What lines, arrows and colours over a picture mean: words beside their marks.

import { strip } from "./colourbar.js";
import { element } from "./store.js";

// items: {text, colour, style} for lines, {text, palette} for colours, {text, style: "hatched"}
export function legend(id, items) {
  element(id).replaceChildren(
    ...items.map((item) => {
      const part = document.createElement("span");
      part.className = "item";
      part.append(item.palette ? gradient(item.palette) : mark(item), item.text);
      return part;
    }),
  );
}

function mark({ colour, style }) {
  const drawn = document.createElement("span");
  drawn.className = `mark ${style ?? ""}`;
  if (colour) drawn.style.setProperty("border-color", colour);
  return drawn;
}

function gradient(palette) {
  const canvas = document.createElement("canvas");
  canvas.width = palette.length;
  canvas.height = 1;
  canvas.getContext("2d").drawImage(strip(palette, palette.length), 0, 0);
  return canvas;
}
