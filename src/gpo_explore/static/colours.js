// Colour tables with even steps of lightness, made in the OKLab colour space.

const SIZE = 256;
const MOST_SORTED = 20_000;

function toRgb(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(angle);
  const b = chroma * Math.sin(angle);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

// Returns red, green, blue from 0 to 255; a chroma that no screen has is lowered, lightness is not.
function colour(lightness, chroma, hue) {
  let linear = toRgb(lightness, chroma, hue);
  while (chroma > 0 && linear.some((part) => part < -1e-4 || part > 1.0001)) {
    chroma -= 0.004;
    linear = toRgb(lightness, Math.max(0, chroma), hue);
  }
  return linear.map((part) => {
    const clipped = Math.min(1, Math.max(0, part));
    const encoded = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
    return Math.round(255 * encoded);
  });
}

function table(at) {
  const words = new Uint32Array(SIZE);
  for (let n = 0; n < SIZE; n++) {
    const [red, green, blue] = at(n / (SIZE - 1));
    words[n] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return words;
}

export const SEQUENTIAL = table((t) => colour(0.2 + 0.74 * t, 0.13, 295 - 185 * t));
export const DIVERGING = table((t) => {
  const away = Math.abs(2 * t - 1);
  return colour(0.96 - 0.56 * away, 0.19 * away ** 0.8, t < 0.5 ? 256 : 32);
});

// Returns a function from values to colours as words of image data.
export function painter({ limits: [low, high], palette }) {
  const factor = (SIZE - 1) / (high - low);
  return (value) => palette[Math.min(SIZE - 1, Math.max(0, Math.round((value - low) * factor)))];
}

export function css(value, scale) {
  const bits = painter(scale)(value);
  return `rgb(${bits & 255} ${(bits >> 8) & 255} ${(bits >> 16) & 255})`;
}

// Returns the ends of a colour scale and its table: symmetric where zero lies well inside.
export function scaleOf(low, high) {
  if (!(high > low)) return { limits: [low - 0.5, low + 0.5], palette: SEQUENTIAL };
  if (low < 0 && high > 0 && Math.min(-low, high) > 0.2 * Math.max(-low, high)) {
    const most = Math.max(-low, high);
    return { limits: [-most, most], palette: DIVERGING };
  }
  return { limits: [low, high], palette: SEQUENTIAL };
}

// Returns a scale around zero, for errors, changes and contributions.
export function signedScale(values, isKnown) {
  const [low, high] = fittedEnds([values], isKnown);
  const most = Math.max(-low, high) || 1;
  return { limits: [-most, most], palette: DIVERGING };
}

// Returns the ends of a scale that fits some fields: a few values far from all others are left beyond.
export function fittedEnds(fields, isKnown) {
  const found = [];
  for (const values of fields) {
    const step = Math.max(1, Math.floor(values.length / MOST_SORTED));
    for (let n = 0; n < values.length; n += step) {
      if ((!isKnown || isKnown[n]) && Number.isFinite(values[n])) found.push(values[n]);
    }
  }
  const whole = fields.map((values) => endsOf(values, isKnown));
  const ends = [Math.min(...whole.map(([low]) => low)), Math.max(...whole.map(([, high]) => high))];
  if (found.length < 200) return ends;
  found.sort((a, b) => a - b);
  const at = (fraction) => found[Math.round(fraction * (found.length - 1))];
  const [low, high] = [at(0.002), at(0.998)];
  return high - low < 0.6 * (ends[1] - ends[0]) && high > low ? [low, high] : ends;
}

export function endsOf(values, isKnown) {
  let low = Infinity;
  let high = -Infinity;
  for (let n = 0; n < values.length; n++) {
    if ((isKnown && !isKnown[n % isKnown.length]) || !Number.isFinite(values[n])) continue;
    if (values[n] < low) low = values[n];
    if (values[n] > high) high = values[n];
  }
  return low <= high ? [low, high] : [0, 1];
}

const RAISED = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].map((sign, n) => [n, sign])) };

// Returns a number as short as it can be told apart on a scale.
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits}×10${[...String(Number(power))].map((sign) => RAISED[sign]).join("")}`;
  }
  return String(Number(value.toPrecision(4)));
}

export const withUnits = (value, units) => (units ? `${short(value)} ${units}` : short(value));

// Returns some round numbers between two ends: about as many as there is room for, and three where
// that many have it. steps: distances that are round, from small to large.
export function ticks(low, high, most, steps = roundSteps((high - low) / Math.max(1, most))) {
  const rough = (high - low) / Math.max(1, most);
  let chosen = steps.findIndex((step) => step >= rough);
  if (chosen < 0) chosen = steps.length - 1;
  const least = Math.min(3, Math.floor(most));
  while (chosen > 0 && multiples(low, high, steps[chosen]).length < least) chosen--;
  return multiples(low, high, steps[chosen]);
}

function roundSteps(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [0.1, 0.2, 0.5, 1, 2, 5, 10].map((n) => n * power);
}

function multiples(low, high, step) {
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) {
    found.push(Math.abs(at) < 1e-9 * step ? 0 : at);
  }
  return found;
}
