// Gaussians on a picture: ellipses of one sigma in the plane or in a slice, curves in one dimension.

const NUM_SIGMAS = 3;

// Returns {x, y, xx, xy, yy}: center and covariance of the one-sigma ellipse in the drawn plane, which in
// three dimensions is the intersection of the ellipsoid with the slice; null if they do not intersect.
export function planeEllipse(geometry, center, covariance) {
  const dim = geometry.numAxes;
  const [across, up] = geometry.plane;
  const c = (i, j) => covariance[i * dim + j];
  const ellipse = { x: center[across], y: center[up], xx: c(across, across), xy: c(across, up), yy: c(up, up) };
  if (dim < 3) return ellipse;
  const { axis, at } = geometry.slice;
  const [depth, variance] = [at - center[axis], c(axis, axis)];
  const shrink = 1 - (depth * depth) / variance;
  if (shrink <= 0) return null;
  return {
    x: ellipse.x + (c(across, axis) / variance) * depth,
    y: ellipse.y + (c(up, axis) / variance) * depth,
    xx: shrink * (ellipse.xx - c(across, axis) ** 2 / variance),
    xy: shrink * (ellipse.xy - (c(across, axis) * c(up, axis)) / variance),
    yy: shrink * (ellipse.yy - c(up, axis) ** 2 / variance),
  };
}

// Adds an ellipse to a path in pixels, with its periodic images.
export function addEllipse(path, picture, { x, y, xx, xy, yy }) {
  const { geometry, box } = picture.content;
  const { frame } = picture;
  const toX = frame.width / (box.right - box.left);
  const toY = frame.height / (box.top - box.bottom);
  // The pixel axis points downwards.
  const [a, b, d] = [toX * toX * xx, -toX * toY * xy, toY * toY * yy];
  const mean = (a + d) / 2;
  const half = Math.hypot((a - d) / 2, b);
  const radii = [mean + half, Math.max(0, mean - half)].map(Math.sqrt);
  const angle = Math.atan2(2 * b, a - d) / 2;
  const [across, up] = geometry.plane;
  for (const right of images(geometry, across)) {
    for (const above of images(geometry, up)) {
      const [px, py] = picture.toPixel(x + right, y + above);
      const isVisible = px > frame.x - radii[0] && px < frame.x + frame.width + radii[0] &&
        py > frame.y - radii[0] && py < frame.y + frame.height + radii[0];
      if (!isVisible) continue;
      path.moveTo(px + radii[0] * Math.cos(angle), py + radii[0] * Math.sin(angle));
      path.ellipse(px, py, radii[0], radii[1], angle, 0, 2 * Math.PI);
    }
  }
}

// Returns the offsets of the periodic images along an axis.
export function images(geometry, axis) {
  const period = geometry.periodOf(axis);
  return period ? [-period, 0, period] : [0];
}

// Adds the curve of a one-dimensional Gaussian to a path.
export function addCurve(path, picture, { center, variance, amplitude, offset }) {
  const { frame } = picture;
  const [low, high] = picture.content.scale.limits;
  const y = (value) => frame.y + ((high - value) / (high - low)) * frame.height;
  const sigma = Math.sqrt(variance);
  for (const shift of images(picture.content.geometry, 0)) {
    for (let n = 0; n <= 40; n++) {
      const away = (NUM_SIGMAS * (2 * n - 40)) / 40;
      const [px] = picture.toPixel(center + shift + away * sigma, 0);
      path[n ? "lineTo" : "moveTo"](px, y(offset + amplitude * Math.exp(-0.5 * away * away)));
    }
  }
}

// Strokes a path with a light outline, so that it is visible on any colour.
export function strokeOutlined(context, path, { dash = [], width = 1.2, colour = "#14181f" } = {}) {
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
