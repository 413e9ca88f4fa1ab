// Gaussians over a picture: ellipses of one sigma in the plane, also in slices, and curves on a line.

const REACH = 3;

// Returns {x, y, xx, xy, yy}: the ellipse of one sigma in the drawn plane; null where a slice misses it.
// center and covariance are of all drawn axes; in space the ellipse is the cut through the ellipsoid.
export function cut(geometry, center, covariance) {
  const dim = geometry.numAxes;
  const [across, up] = geometry.plane;
  const c = (i, j) => covariance[i * dim + j];
  const ellipse = { x: center[across], y: center[up], xx: c(across, across), xy: c(across, up), yy: c(up, up) };
  if (dim < 3) return ellipse;
  const { axis, at } = geometry.slice;
  const [depth, own] = [at - center[axis], c(axis, axis)];
  const left = 1 - (depth * depth) / own;
  if (left <= 0) return null;
  return {
    x: ellipse.x + (c(across, axis) / own) * depth,
    y: ellipse.y + (c(up, axis) / own) * depth,
    xx: left * (ellipse.xx - c(across, axis) ** 2 / own),
    xy: left * (ellipse.xy - (c(across, axis) * c(up, axis)) / own),
    yy: left * (ellipse.yy - c(up, axis) ** 2 / own),
  };
}

// Adds an ellipse of the plane to a path in pixels, and its images across the seams of periodic axes.
export function trace(path, picture, { x, y, xx, xy, yy }) {
  const { geometry, box } = picture.content;
  const { frame } = picture;
  const toX = frame.width / (box.right - box.left);
  const toY = frame.height / (box.top - box.bottom);
  // Pixels count downwards.
  const [a, b, d] = [toX * toX * xx, -toX * toY * xy, toY * toY * yy];
  const middle = (a + d) / 2;
  const apart = Math.hypot((a - d) / 2, b);
  const radii = [middle + apart, Math.max(0, middle - apart)].map(Math.sqrt);
  const angle = Math.atan2(2 * b, a - d) / 2;
  const [across, up] = geometry.plane;
  for (const right of images(geometry, across)) {
    for (const above of images(geometry, up)) {
      const [px, py] = picture.toPixel(x + right, y + above);
      const isNear = px > frame.x - radii[0] && px < frame.x + frame.width + radii[0] &&
        py > frame.y - radii[0] && py < frame.y + frame.height + radii[0];
      if (!isNear) continue;
      path.moveTo(px + radii[0] * Math.cos(angle), py + radii[0] * Math.sin(angle));
      path.ellipse(px, py, radii[0], radii[1], angle, 0, 2 * Math.PI);
    }
  }
}

export function images(geometry, axis) {
  const period = geometry.periodOf(axis);
  return period ? [-period, 0, period] : [0];
}

// Adds the curve of a Gaussian on a line to a path: its height above what lies far from all.
export function traceCurve(path, picture, { center, variance, amplitude, offset }) {
  const { frame } = picture;
  const [low, high] = picture.content.scale.limits;
  const y = (value) => frame.y + ((high - value) / (high - low)) * frame.height;
  const sigma = Math.sqrt(variance);
  for (const shift of images(picture.content.geometry, 0)) {
    for (let n = 0; n <= 40; n++) {
      const away = (REACH * (2 * n - 40)) / 40;
      const [px] = picture.toPixel(center + shift + away * sigma, 0);
      path[n ? "lineTo" : "moveTo"](px, y(offset + amplitude * Math.exp(-0.5 * away * away)));
    }
  }
}

// Strokes a path so that it is seen over any colour.
export function strokeSeen(context, path, { dash = [], width = 1.2, colour = "#14181f" } = {}) {
  context.setLineDash(dash);
  context.lineWidth = width + 1.6;
  context.strokeStyle = "#ffffff90";
  context.stroke(path);
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.stroke(path);
  context.setLineDash([]);
  context.lineWidth = 1;
}
