// Colour tables with even steps of lightness, in the OKLab colour space; colour scales; number formats.

const SIZE = 256;
const MAX_SORTED = 20_000;

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

// Returns red, green and blue from 0 to 255; chroma outside the sRGB gamut is reduced at constant lightness.
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

// Returns a function from values to packed colours of image data.
export function painter({ limits: [low, high], palette }) {
  const factor = (SIZE - 1) / (high - low);
  return (value) => palette[Math.min(SIZE - 1, Math.max(0, Math.round((value - low) * factor)))];
}

export function css(value, scale) {
  const bits = painter(scale)(value);
  return `rgb(${bits & 255} ${(bits >> 8) & 255} ${(bits >> 16) & 255})`;
}

// Returns the limits and palette of a colour scale: symmetric if zero is well inside the range.
export function scaleOf(low, high) {
  if (!(high > low)) return { limits: [low - 0.5, low + 0.5], palette: SEQUENTIAL };
  if (low < 0 && high > 0 && Math.min(-low, high) > 0.2 * Math.max(-low, high)) {
    const limit = Math.max(-low, high);
    return { limits: [-limit, limit], palette: DIVERGING };
  }
  return { limits: [low, high], palette: SEQUENTIAL };
}

// Returns a scale that is symmetric about zero, for errors, changes and contributions.
export function signedScale(values, isActive) {
  const [low, high] = robustRange([values], isActive);
  const limit = Math.max(-low, high) || 1;
  return { limits: [-limit, limit], palette: DIVERGING };
}

// Returns the range of fields; if a few outliers widen it much, the range of 99.6 % of the values.
export function robustRange(fields, isActive) {
  const sample = [];
  for (const values of fields) {
    const step = Math.max(1, Math.floor(values.length / MAX_SORTED));
    for (let n = 0; n < values.length; n += step) {
      if ((!isActive || isActive[n]) && Number.isFinite(values[n])) sample.push(values[n]);
    }
  }
  const ranges = fields.map((values) => rangeOf(values, isActive));
  const full = [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];
  if (sample.length < 200) return full;
  sample.sort((a, b) => a - b);
  const quantile = (fraction) => sample[Math.round(fraction * (sample.length - 1))];
  const [low, high] = [quantile(0.002), quantile(0.998)];
  return high - low < 0.6 * (full[1] - full[0]) && high > low ? [low, high] : full;
}

export function rangeOf(values, isActive) {
  let low = Infinity;
  let high = -Infinity;
  for (let n = 0; n < values.length; n++) {
    if ((isActive && !isActive[n % isActive.length]) || !Number.isFinite(values[n])) continue;
    if (values[n] < low) low = values[n];
    if (values[n] > high) high = values[n];
  }
  return low <= high ? [low, high] : [0, 1];
}

const SUPERSCRIPTS = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].map((sign, n) => [n, sign])) };

// Returns a number with four significant digits, or in scientific notation.
export function format(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits}×10${[...String(Number(power))].map((sign) => SUPERSCRIPTS[sign]).join("")}`;
  }
  return String(Number(value.toPrecision(4)));
}

export const withUnits = (value, units) => (units ? `${format(value)} ${units}` : format(value));

// Returns round numbers from low to high: about `count` of them, but three if possible.
// steps: the allowed distances between them, in increasing order.
export function ticks(low, high, count, steps = roundSteps((high - low) / Math.max(1, count))) {
  const spacing = (high - low) / Math.max(1, count);
  let index = steps.findIndex((step) => step >= spacing);
  if (index < 0) index = steps.length - 1;
  const min = Math.min(3, Math.floor(count));
  while (index > 0 && multiples(low, high, steps[index]).length < min) index--;
  return multiples(low, high, steps[index]);
}

function roundSteps(spacing) {
  const power = 10 ** Math.floor(Math.log10(spacing));
  return [0.1, 0.2, 0.5, 1, 2, 5, 10].map((n) => n * power);
}

function multiples(low, high, step) {
  const values = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) {
    values.push(Math.abs(at) < 1e-9 * step ? 0 : at);
  }
  return values;
}
