// Values between sites: linear along the axes of a grid and within the triangles of a mesh, those of
// the nearest site where points are scattered.

// Returns, for places along a drawn axis, the lines of the grid around each times their stride, and
// how far it is from the first to the second.
function brackets(geometry, drawn, first, last, count) {
  const fileAxis = geometry.file_axes[drawn];
  const axis = geometry.axes[fileAxis];
  const stride = geometry.shape.slice(fileAxis + 1).reduce((product, size) => product * size, 1);
  const order = Array.from(axis.keys()).sort((a, b) => axis[a] - axis[b]);
  const at = order.map((n) => axis[n]);
  const end = at.length - 1;
  const period = geometry.periodOf(drawn);
  const [low, high, fraction] = [new Int32Array(count), new Int32Array(count), new Float32Array(count)];
  for (let n = 0; n < count; n++) {
    let place = first + ((n + 0.5) / count) * (last - first);
    if (period && place < at[0]) place += period;
    let [below, above] = [0, at.length];
    while (below < above) {
      const middle = (below + above) >> 1;
      if (at[middle] <= place) below = middle + 1;
      else above = middle;
    }
    const left = below - 1;
    const isPast = left < 0 || left >= end;
    const [from, to] = isPast ? (period ? [end, 0] : left < 0 ? [0, 0] : [end, end]) : [left, left + 1];
    const step = isPast && period ? at[0] + period - at[end] : at[to] - at[from];
    low[n] = order[from] * stride;
    high[n] = order[to] * stride;
    fraction[n] = step > 0 ? Math.min(1, Math.max(0, (place - at[from]) / step)) : 0;
  }
  return { low, high, fraction };
}

// Returns a function from the values of sites to those of every pixel; NaN where nothing is known.
// sites: the nearest site of every pixel.
export function sampler(geometry, sites, box, width, height) {
  if (geometry.kind === "axes" && geometry.numAxes > 1) return gridSampler(geometry, sites, box, width, height);
  if (geometry.kind === "cells") return cellSampler(geometry, sites, box, width, height);
  return (values) => Float32Array.from(sites, (site) => (site >= 0 && geometry.known[site] ? values[site] : NaN));
}

function gridSampler(geometry, sites, box, width, height) {
  const [across, up] = geometry.plane;
  const columns = brackets(geometry, across, box.left, box.right, width);
  const rows = brackets(geometry, up, box.top, box.bottom, height);
  const { known } = geometry;
  const base = geometry.sliceStart();
  return (values) => {
    const found = new Float32Array(width * height);
    for (let row = 0, n = 0; row < height; row++) {
      const [upper, lower, down] = [base + rows.low[row], base + rows.high[row], rows.fraction[row]];
      for (let column = 0; column < width; column++, n++) {
        if (sites[n] < 0 || !known[sites[n]]) {
          found[n] = NaN;
          continue;
        }
        const [left, right, t] = [columns.low[column], columns.high[column], columns.fraction[column]];
        const [i, j, k, l] = [upper + left, upper + right, lower + left, lower + right];
        if (known[i] && known[j] && known[k] && known[l]) {
          const top = values[i] + t * (values[j] - values[i]);
          found[n] = top + down * (values[k] + t * (values[l] - values[k]) - top);
        } else {
          found[n] = blended(values, known, [i, j, k, l], [(1 - down) * (1 - t), (1 - down) * t, down * (1 - t), down * t]);
        }
      }
    }
    return found;
  };
}

function cellSampler(geometry, sites, box, width, height) {
  const corners = new Int32Array(3 * width * height).fill(-1);
  const shares = new Float32Array(3 * width * height);
  geometry.eachCellPixel(box, width, height, (n, [i, j, k], a, b, c) => {
    corners.set([i, j, k], 3 * n);
    shares.set([a, b, c], 3 * n);
  });
  return (values) => Float32Array.from(sites, (site, n) => {
    if (site < 0 || !geometry.known[site]) return NaN;
    return blended(values, geometry.known, corners.subarray(3 * n, 3 * n + 3), shares.subarray(3 * n, 3 * n + 3));
  });
}

// Returns the mean of what is known.
function blended(values, known, numbers, shares) {
  let [sum, total] = [0, 0];
  for (let n = 0; n < numbers.length; n++) {
    const value = values[numbers[n]];
    if (!shares[n] || !known[numbers[n]] || !Number.isFinite(value)) continue;
    sum += shares[n] * value;
    total += shares[n];
  }
  return total > 0 ? sum / total : NaN;
}

// Returns the value at one point of the drawn space, linear between sites along every axis; null
// where points are scattered.
export function interpolatedAt(geometry, values, point) {
  if (geometry.kind === "axes") {
    let [numbers, shares] = [[0], [1]];
    for (let axis = 0; axis < geometry.numAxes; axis++) {
      const { low, high, fraction } = brackets(geometry, axis, point[axis], point[axis], 1);
      numbers = numbers.flatMap((n) => [n + low[0], n + high[0]]);
      shares = shares.flatMap((share) => [share * (1 - fraction[0]), share * fraction[0]]);
    }
    return blended(values, geometry.known, numbers, shares);
  }
  if (geometry.kind !== "cells") return null;
  const [x, y] = point;
  const reach = 1e-6 * (geometry.upper[0] - geometry.lower[0]);
  let found = null;
  geometry.eachCellPixel({ left: x - reach, right: x + reach, bottom: y - reach, top: y + reach }, 1, 1,
    (_, corners, ...shares) => (found = blended(values, geometry.known, corners, shares)));
  return found;
}
