// Coastlines of the Earth on a map; coastline.json names their source.

import { themeColour } from "./picture.js";
import { reach } from "./requests.js";

let loaded = null;

// Returns polylines of alternating longitudes and latitudes in degrees; loads them once.
export function coastlines() {
  loaded ??= reach("static/coastline.json").then((response) => response.json()).then(decode).catch((error) => {
    // The next call tries again.
    loaded = null;
    throw error;
  });
  return loaded;
}

function decode({ unit, digits, lines }) {
  return lines.map((text) => {
    const steps = decodeIntegers(text, digits);
    const line = new Float32Array(steps.length);
    let [x, y] = [0, 0];
    for (let n = 0; n < steps.length; n += 2) {
      line[n] = unit * (x += steps[n]);
      line[n + 1] = unit * (y += steps[n + 1]);
    }
    return line;
  });
}

// Decodes signed integers from base-32 digits, the lowest first.
function decodeIntegers(text, digits) {
  const integers = [];
  let [sum, power] = [0, 1];
  for (const digit of text) {
    const value = digits.indexOf(digit);
    sum += (value % 32) * power;
    power *= 32;
    if (value >= 32) continue;
    integers.push(sum % 2 ? -(sum + 1) / 2 : sum / 2);
    [sum, power] = [0, 1];
  }
  return integers;
}

// Draws the coastlines inside the box of a picture; maps may start at any longitude.
export function drawCoast(context, picture, lines) {
  const { box, geometry } = picture.content;
  const path = new Path2D();
  const margin = geometry.is_sphere ? 8 : (box.right - box.left) / 8;
  for (const shift of geometry.is_sphere ? [-360, 0, 360] : [0]) {
    for (const line of lines) {
      let isDown = false;
      for (let n = 0; n < line.length; n += 2) {
        const longitude = line[n] + shift;
        // Includes points just outside the box, which are clipped.
        const isVisible = longitude > box.left - margin && longitude < box.right + margin && line[n + 1] > box.bottom - margin && line[n + 1] < box.top + margin;
        if (!isVisible) {
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
