// Paths of tracers on a picture: past and future part, start and current position.

const RADIUS = 5;
// Points per frame of an interpolated curve.
const POINTS_PER_FRAME = 8;

// Returns the curves of all tracers in the drawn plane; cached for a path and a plane.
const cache = new WeakMap();
export function curvesOf(path, geometry) {
  const key = geometry.plane.join();
  if (cache.get(path)?.key !== key) {
    cache.set(path, { key, curves: Array.from({ length: path.shape[0] }, (_, tracer) => curveOf(path, tracer, geometry)) });
  }
  return cache.get(path).curves;
}

// Returns a Catmull-Rom curve through the frames of a path. It ends where the tracer leaves the domain
// or reaches masked sites.
function curveOf(path, tracer, geometry) {
  const [, frames, axes] = path.shape;
  const [across, up] = geometry.plane;
  const positions = [];
  for (let frame = 0; frame < frames; frame++) {
    const first = (tracer * frames + frame) * axes;
    let [x, y] = [path.data[first + across], path.data[first + up]];
    if (!Number.isFinite(x) || !Number.isFinite(y)) break;
    if (frame && !isActive(geometry, x, y)) break;
    // On a map, takes the periodic image nearest to the previous position.
    if (geometry.is_sphere && frame) x -= 360 * Math.round((x - positions.at(-1)[0]) / 360);
    positions.push([x, y]);
  }
  return positions.flatMap((_, n) => (n + 1 < positions.length ? segment(positions, n) : [positions[n]]));
}

// Returns false at masked sites; in three dimensions only the shown slice is known, so always true.
function isActive(geometry, x, y) {
  if (geometry.numAxes > 2) return true;
  const site = geometry.siteAt(...wrapped(geometry, [x, y]));
  return site < 0 || Boolean(geometry.active[site]);
}

function segment(positions, n) {
  const at = (k) => positions[Math.min(positions.length - 1, Math.max(0, k))];
  const [before, from, to, after] = [at(n - 1), at(n), at(n + 1), at(n + 2)];
  return Array.from({ length: POINTS_PER_FRAME }, (_, k) => {
    const t = k / POINTS_PER_FRAME;
    return [0, 1].map((axis) => {
      const [a, b, c, d] = [before[axis], from[axis], to[axis], after[axis]];
      return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
    });
  });
}

// Draws a tracer; time in frames. isOther: whether it belongs to the other picture.
export function drawTracer(context, picture, curve, time, { colour, isOther }) {
  const now = Math.min(curve.length - 1, Math.round(time * POINTS_PER_FRAME));
  context.lineJoin = context.lineCap = "round";
  const past = pathOf(picture, curve.slice(0, now + 1));
  if (isOther) {
    stroke(context, past, 2.2, colour, [0.5, 5]);
    return;
  }
  context.globalAlpha = 0.35;
  stroke(context, pathOf(picture, curve.slice(now)), 1.2, colour);
  context.globalAlpha = 1;
  stroke(context, past, 5, "#0b1018a0");
  stroke(context, past, 2.6, colour);
  dot(context, pixelOf(picture, curve[0]), RADIUS - 1.5, "#0b1018", colour);
  dot(context, pixelOf(picture, curve[now]), RADIUS, colour, "#ffffff");
}

// Returns the path through positions, interrupted where it wraps around a periodic boundary.
function pathOf(picture, positions) {
  const { frame } = picture;
  const path = new Path2D();
  let last = null;
  for (const position of positions) {
    const [x, y] = pixelOf(picture, position);
    const isJump = !last || Math.abs(x - last[0]) > frame.width / 2 || Math.abs(y - last[1]) > frame.height / 2;
    if (isJump) path.moveTo(x, y);
    else path.lineTo(x, y);
    last = [x, y];
  }
  return path;
}

function stroke(context, path, width, colour, dash = []) {
  context.setLineDash(dash);
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.stroke(path);
  context.setLineDash([]);
}

function dot(context, [x, y], radius, fill, rim) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  Object.assign(context, { lineWidth: 2, strokeStyle: rim, fillStyle: fill });
  context.fill();
  context.stroke();
}

// Returns the pixel of a position, relative to the frame and wrapped into the drawn period.
function pixelOf(picture, position) {
  const { geometry } = picture.content;
  const [x, y] = picture.toPixel(...wrapped(geometry, position));
  return [x - picture.frame.x, y - picture.frame.y];
}

function wrapped(geometry, position) {
  return position.map((at, n) => {
    const axis = geometry.plane[n];
    const [low, period] = [geometry.lower[axis], geometry.periodOf(axis)];
    return period ? low + ((((at - low) % period) + period) % period) : at;
  });
}
