// How large pictures are: as large as the screen allows, side by side or below each other.

const GAP = 8;
const CAPTION = 22;
const AXIS = { left: 52, bottom: 36, map: 24 };
const BAR = { right: 78, below: 36 };
const EDGE = { left: 6, right: 10, top: 8, bottom: 6 };
const NARROW = 560;
const WIDE = 2.5;

// Returns how wide a box is for its height, in equal lengths; null where any shape will do.
export function shapeOf(geometry) {
  const { left, right, bottom, top } = geometry.homeBox();
  const ratio = ((right - left) / (top - bottom)) * geometry.stretch;
  return geometry.numAxes === 1 || ratio > 6 || ratio < 1 / 6 ? null : ratio;
}

// Returns how high some pictures may be together: those that are wide lie below each other, and need more.
export function roomFor(geometry, usual) {
  return (shapeOf(geometry) ?? 1) > WIDE ? 1.5 * usual : usual;
}

// Returns {frames, margins, area, isStacked}: the sizes of some equal pictures within a room.
export function arrange(count, geometry, { width, height }) {
  const shape = shapeOf(geometry);
  const isCurve = geometry.numAxes === 1;
  const both = [true, false].slice(0, count > 1 ? 2 : 1).map((isStacked) => {
    const isBelow = !isCurve && (!isStacked || width < NARROW);
    const margins = Array.from({ length: count }, (_, n) => marginsOf({ n, count, isStacked, isBelow, isCurve, isMap: geometry.is_sphere }));
    const sum = (part) => margins.reduce((total, margin) => total + part(margin), 0);
    const across = (margin) => margin.left + margin.right;
    const down = (margin) => margin.top + margin.bottom + CAPTION;
    const most = isStacked
      ? { width: width - Math.max(...margins.map(across)), height: (Math.max(height, width < NARROW ? 460 * count : 0) - sum(down)) / count - GAP }
      : { width: (width - sum(across) - GAP * (count - 1)) / count, height: height - Math.max(...margins.map(down)) };
    const frame = within(most, shape, isStacked ? 0.3 : 0.75);
    return { frame, margins, isStacked, area: frame.width * frame.height, isBelow };
  });
  return both.reduce((best, other) => (other.area > best.area ? other : best));
}

function marginsOf({ n, count, isStacked, isBelow, isCurve, isMap }) {
  const hasLeft = isStacked || isCurve || n === 0;
  const hasBottom = !isStacked || isCurve || n === count - 1;
  return {
    left: hasLeft ? AXIS.left : EDGE.left,
    right: isCurve || isBelow ? EDGE.right : BAR.right,
    top: EDGE.top,
    bottom: (hasBottom ? (isMap ? AXIS.map : AXIS.bottom) : EDGE.bottom) + (isBelow ? BAR.below : 0),
    hasLeft, hasBottom, isBelow,
  };
}

function within(most, shape, usual) {
  const room = { width: Math.max(60, most.width), height: Math.max(60, most.height) };
  if (shape === null) return { width: room.width, height: Math.max(60, Math.min(room.height, usual * room.width)) };
  const width = Math.min(room.width, room.height * shape);
  return { width, height: width / shape };
}

// Gives pictures their margins and canvases their sizes.
export function settle(pictures, { frame, margins }) {
  pictures.forEach((picture, n) => {
    const margin = margins[n];
    const width = Math.floor(frame.width + margin.left + margin.right);
    const height = Math.floor(frame.height + margin.top + margin.bottom);
    picture.margin = margin;
    picture.canvas.style.width = `${width}px`;
    picture.canvas.style.height = `${height}px`;
    picture.canvas.parentElement.style.width = `${width}px`;
  });
}
