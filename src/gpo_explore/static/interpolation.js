// Interpolation: multilinear on a grid, linear in the triangles of a mesh, nearest-neighbour at
// unstructured points.

// Returns the grid indices around each of `count` coordinates along a drawn axis, times their stride,
// and the fraction of the distance from the first to the second.
function brackets(geometry, drawn, first, last, count) {
  const { order, coords: at, stride } = geometry.gridAxis(drawn);
  const end = at.length - 1;
  const period = geometry.periodOf(drawn);
  const [low, high, fraction] = [new Int32Array(count), new Int32Array(count), new Float32Array(count)];
  for (let n = 0; n < count; n++) {
    let x = first + ((n + 0.5) / count) * (last - first);
    if (period && x < at[0]) x += period;
    let [below, above] = [0, at.length];
    while (below < above) {
      const middle = (below + above) >> 1;
      if (at[middle] <= x) below = middle + 1;
      else above = middle;
    }
    const left = below - 1;
    const isOutside = left < 0 || left >= end;
    const [from, to] = isOutside ? (period ? [end, 0] : left < 0 ? [0, 0] : [end, end]) : [left, left + 1];
    const step = isOutside && period ? at[0] + period - at[end] : at[to] - at[from];
    low[n] = order[from] * stride;
    high[n] = order[to] * stride;
    fraction[n] = step > 0 ? Math.min(1, Math.max(0, (x - at[from]) / step)) : 0;
  }
  return { low, high, fraction };
}

// Returns a function from the values at sites to those at every pixel, NaN where there is no data.
// sites: the nearest site of every pixel.
export function sampler(geometry, sites, box, width, height) {
  if (geometry.kind === "axes" && geometry.numAxes > 1) return gridSampler(geometry, sites, box, width, height);
  if (geometry.kind === "cells") return cellSampler(geometry, sites, box, width, height);
  return (values) => Float32Array.from(sites, (site) => (site >= 0 && geometry.active[site] ? values[site] : NaN));
}

function gridSampler(geometry, sites, box, width, height) {
  const [across, up] = geometry.plane;
  const columns = brackets(geometry, across, box.left, box.right, width);
  const rows = brackets(geometry, up, box.top, box.bottom, height);
  const { active } = geometry;
  const base = geometry.sliceStart();
  return (values) => {
    const pixels = new Float32Array(width * height);
    for (let row = 0, n = 0; row < height; row++) {
      const [upper, lower, down] = [base + rows.low[row], base + rows.high[row], rows.fraction[row]];
      for (let column = 0; column < width; column++, n++) {
        if (sites[n] < 0 || !active[sites[n]]) {
          pixels[n] = NaN;
          continue;
        }
        const [left, right, t] = [columns.low[column], columns.high[column], columns.fraction[column]];
        const [i, j, k, l] = [upper + left, upper + right, lower + left, lower + right];
        if (active[i] && active[j] && active[k] && active[l]) {
          const top = values[i] + t * (values[j] - values[i]);
          pixels[n] = top + down * (values[k] + t * (values[l] - values[k]) - top);
        } else {
          pixels[n] = weightedMean(values, active, [i, j, k, l], [(1 - down) * (1 - t), (1 - down) * t, down * (1 - t), down * t]);
        }
      }
    }
    return pixels;
  };
}

function cellSampler(geometry, sites, box, width, height) {
  const corners = new Int32Array(3 * width * height).fill(-1);
  const weights = new Float32Array(3 * width * height);
  geometry.eachCellPixel(box, width, height, (n, [i, j, k], a, b, c) => {
    corners.set([i, j, k], 3 * n);
    weights.set([a, b, c], 3 * n);
  });
  return (values) => Float32Array.from(sites, (site, n) => {
    if (site < 0 || !geometry.active[site]) return NaN;
    return weightedMean(values, geometry.active, corners.subarray(3 * n, 3 * n + 3), weights.subarray(3 * n, 3 * n + 3));
  });
}

// Returns the weighted mean over active sites; NaN if there are none.
function weightedMean(values, active, sites, weights) {
  let [sum, total] = [0, 0];
  for (let n = 0; n < sites.length; n++) {
    const value = values[sites[n]];
    if (!weights[n] || !active[sites[n]] || !Number.isFinite(value)) continue;
    sum += weights[n] * value;
    total += weights[n];
  }
  return total > 0 ? sum / total : NaN;
}

// Returns the interpolated value at one point in drawn coordinates; null for unstructured points.
export function interpolatedAt(geometry, values, point) {
  if (geometry.kind === "axes") {
    let [sites, weights] = [[0], [1]];
    for (let axis = 0; axis < geometry.numAxes; axis++) {
      const { low, high, fraction } = brackets(geometry, axis, point[axis], point[axis], 1);
      sites = sites.flatMap((site) => [site + low[0], site + high[0]]);
      weights = weights.flatMap((weight) => [weight * (1 - fraction[0]), weight * fraction[0]]);
    }
    return weightedMean(values, geometry.active, sites, weights);
  }
  if (geometry.kind !== "cells") return null;
  const [x, y] = point;
  const half = 1e-6 * (geometry.upper[0] - geometry.lower[0]);
  let value = null;
  geometry.eachCellPixel({ left: x - half, right: x + half, bottom: y - half, top: y + half }, 1, 1,
    (_, corners, ...weights) => (value = weightedMean(values, geometry.active, corners, weights)));
  return value;
}
