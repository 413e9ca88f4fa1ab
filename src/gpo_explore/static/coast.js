// Coastlines of the Earth over a map: see coastline.json for where they come from.

import { themeColour } from "./picture.js";
import { reach } from "./wire.js";

let loaded = null;

// Returns lines of longitudes and latitudes in degrees, one after the other; loads them once.
export function coastlines() {
  loaded ??= reach("static/coastline.json").then((response) => response.json()).then(decoded).catch((error) => {
    // The next wish asks again.
    loaded = null;
    throw error;
  });
  return loaded;
}

export function decoded({ unit, digits, lines }) {
  return lines.map((text) => {
    const steps = numbersIn(text, digits);
    const line = new Float32Array(steps.length);
    let [x, y] = [0, 0];
    for (let n = 0; n < steps.length; n += 2) {
      line[n] = unit * (x += steps[n]);
      line[n + 1] = unit * (y += steps[n + 1]);
    }
    return line;
  });
}

// Returns numbers that are written in digits of base 32, the lowest first.
function numbersIn(text, digits) {
  const found = [];
  let [sum, power] = [0, 1];
  for (const digit of text) {
    const at = digits.indexOf(digit);
    sum += (at % 32) * power;
    power *= 32;
    if (at >= 32) continue;
    found.push(sum % 2 ? -(sum + 1) / 2 : sum / 2);
    [sum, power] = [0, 1];
  }
  return found;
}

// Draws what lies in the box of a picture; maps may begin at any longitude.
export function drawCoast(context, picture, lines) {
  const { box } = picture.content;
  const path = new Path2D();
  for (const shift of [-360, 0, 360]) {
    for (const line of lines) {
      let isDown = false;
      for (let n = 0; n < line.length; n += 2) {
        const longitude = line[n] + shift;
        // One point beyond the edge is drawn too: it is clipped.
        const isSeen = longitude > box.left - 8 && longitude < box.right + 8 && line[n + 1] > box.bottom - 8 && line[n + 1] < box.top + 8;
        if (!isSeen) {
          isDown = false;
          continue;
        }
        const [x, y] = picture.toPixel(longitude, line[n + 1]);
        if (isDown) path.lineTo(x, y);
        else path.moveTo(x, y);
        isDown = true;
      }
    }
  }
  context.lineJoin = "round";
  for (const [width, colour, opacity] of [[2.6, "halo", 0.3], [1, "coast", 0.9]]) {
    context.lineWidth = width;
    context.globalAlpha = opacity;
    context.strokeStyle = themeColour(colour);
    context.stroke(path);
  }
  context.globalAlpha = 1;
  context.lineWidth = 1;
}
