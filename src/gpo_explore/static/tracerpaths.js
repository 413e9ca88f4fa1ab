// Ways of tracers over a picture: what lies behind a tracer, what is ahead, where it starts and is now.

const RADIUS = 5;
// Places between two frames, so that a way is round.
const FINE = 8;

// Returns the ways of all tracers in the plane that is shown; made once for a path and a plane.
const made = new WeakMap();
export function waysOf(path, geometry) {
  const key = geometry.plane.join();
  if (made.get(path)?.key !== key) {
    made.set(path, { key, ways: Array.from({ length: path.shape[0] }, (_, tracer) => wayOf(path, tracer, geometry)) });
  }
  return made.get(path).ways;
}

// FINE places from frame to frame, by Catmull-Rom curves through the frames. A way ends where the
// tracer leaves the domain, or comes to sites that hold nothing.
function wayOf(path, tracer, geometry) {
  const [, frames, axes] = path.shape;
  const [across, up] = geometry.plane;
  const places = [];
  for (let frame = 0; frame < frames; frame++) {
    const first = (tracer * frames + frame) * axes;
    let [x, y] = [path.data[first + across], path.data[first + up]];
    if (!Number.isFinite(x) || !Number.isFinite(y)) break;
    if (frame && !isHeld(geometry, x, y)) break;
    // On a map the next place is the nearer one, though it may be beyond its end.
    if (geometry.is_sphere && frame) x -= 360 * Math.round((x - places.at(-1)[0]) / 360);
    places.push([x, y]);
  }
  return places.flatMap((_, n) => (n + 1 < places.length ? piece(places, n) : [places[n]]));
}

// Returns false at masked sites; of three dimensions only what is shown is known.
function isHeld(geometry, x, y) {
  if (geometry.numAxes > 2) return true;
  const site = geometry.siteAt(...inside(geometry, [x, y]));
  return site < 0 || Boolean(geometry.known[site]);
}

function piece(places, n) {
  const at = (k) => places[Math.min(places.length - 1, Math.max(0, k))];
  const [before, from, to, after] = [at(n - 1), at(n), at(n + 1), at(n + 2)];
  return Array.from({ length: FINE }, (_, k) => {
    const t = k / FINE;
    return [0, 1].map((axis) => {
      const [a, b, c, d] = [before[axis], from[axis], to[axis], after[axis]];
      return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
    });
  });
}

// Draws a tracer at a time in frames; how: {colour, isOther}, the latter for the way of the other side.
export function drawTracer(context, picture, way, time, { colour, isOther }) {
  const now = Math.min(way.length - 1, Math.round(time * FINE));
  context.lineJoin = context.lineCap = "round";
  const behind = traced(picture, way.slice(0, now + 1));
  if (isOther) {
    stroke(context, behind, 2.2, colour, [0.5, 5]);
    return;
  }
  context.globalAlpha = 0.35;
  stroke(context, traced(picture, way.slice(now)), 1.2, colour);
  context.globalAlpha = 1;
  stroke(context, behind, 5, "#0b1018a0");
  stroke(context, behind, 2.6, colour);
  dot(context, pixelOf(picture, way[0]), RADIUS - 1.5, "#0b1018", colour);
  dot(context, pixelOf(picture, way[now]), RADIUS, colour, "#ffffff");
}

// Returns the path of some places; what goes around a periodic end is not drawn across.
function traced(picture, places) {
  const { frame } = picture;
  const path = new Path2D();
  let last = null;
  for (const place of places) {
    const [x, y] = pixelOf(picture, place);
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

// Returns pixels from the corner of the frame, within the period that is shown.
function pixelOf(picture, place) {
  const { geometry } = picture.content;
  const [x, y] = picture.toPixel(...inside(geometry, place));
  return [x - picture.frame.x, y - picture.frame.y];
}

function inside(geometry, place) {
  return place.map((at, n) => {
    const axis = geometry.plane[n];
    const [low, period] = [geometry.lower[axis], geometry.periodOf(axis)];
    return period ? low + ((((at - low) % period) + period) % period) : at;
  });
}
