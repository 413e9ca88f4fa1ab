// Contour lines of a field by marching squares, on a lattice of interpolated values.

import { sampler } from "./interpolation.js";

const STEP = 3;

// Returns the contour line of a level as a path, in pixels of a picture.
export function contour(picture, values, level) {
  const { geometry, box } = picture.content;
  const { frame } = picture;
  const columns = Math.max(2, Math.round(frame.width / STEP));
  const rows = Math.max(2, Math.round(frame.height / STEP));
  const sites = geometry.raster(box, columns, rows);
  let lattice = sampler(geometry, sites, box, columns, rows)(values);
  if (geometry.kind === "points") lattice = smoothed(lattice, columns, rows, 4);
  const path = new Path2D();
  const [wide, tall] = [frame.width / columns, frame.height / rows];
  const x = (column) => frame.x + (column + 0.5) * wide;
  const y = (row) => frame.y + (row + 0.5) * tall;
  for (let row = 0; row + 1 < rows; row++) {
    for (let column = 0; column + 1 < columns; column++) {
      const n = row * columns + column;
      const corners = [lattice[n], lattice[n + 1], lattice[n + columns + 1], lattice[n + columns]];
      for (const [[ax, ay], [bx, by]] of crossings(corners, level)) {
        path.moveTo(x(column + ax), y(row + ay));
        path.lineTo(x(column + bx), y(row + by));
      }
    }
  }
  return path;
}

const CORNERS = [[0, 0], [1, 0], [1, 1], [0, 1]];

// Returns the segments of the line in a square, each as two points; corners are in cyclic order.
export function crossings(corners, level) {
  if (!corners.every(Number.isFinite)) return [];
  const points = [];
  for (let side = 0; side < 4; side++) {
    const [a, b] = [corners[side], corners[(side + 1) % 4]];
    if (a > level === b > level) continue;
    const t = (level - a) / (b - a);
    const [from, to] = [CORNERS[side], CORNERS[(side + 1) % 4]];
    points.push([from[0] + t * (to[0] - from[0]), from[1] + t * (to[1] - from[1])]);
  }
  if (points.length < 4) return points.length === 2 ? [points] : [];
  // At a saddle, the value at the center decides which corners are connected.
  const isJoined = (corners[0] + corners[1] + corners[2] + corners[3]) / 4 > level === corners[0] > level;
  const [top, right, bottom, left] = points;
  return isJoined ? [[top, right], [bottom, left]] : [[left, top], [right, bottom]];
}

// Returns a lattice smoothed by two passes of a box filter; missing values stay missing.
function smoothed(lattice, columns, rows, reach) {
  const along = (values, step, count, start) => {
    const averaged = values.slice();
    for (let line = 0; line < values.length / count; line++) {
      const first = start(line);
      for (let n = 0; n < count; n++) {
        if (!Number.isFinite(values[first + n * step])) continue;
        let [sum, total] = [0, 0];
        for (let m = Math.max(0, n - reach); m <= Math.min(count - 1, n + reach); m++) {
          const value = values[first + m * step];
          if (Number.isFinite(value)) [sum, total] = [sum + value, total + 1];
        }
        averaged[first + n * step] = sum / total;
      }
    }
    return averaged;
  };
  for (let pass = 0; pass < 2; pass++) {
    lattice = along(lattice, 1, columns, (row) => row * columns);
    lattice = along(lattice, columns, rows, (column) => column);
  }
  return lattice;
}
