// Layout of pictures: as large as the screen allows, side by side or stacked.

const GAP = 8;
const CAPTION = 22;
const AXIS = { left: 52, bottom: 36, map: 24 };
const BAR = { right: 78, below: 36 };
const EDGE = { left: 6, right: 10, top: 8, bottom: 6 };
const NARROW_WIDTH = 560;
const WIDE_RATIO = 2.5;

// Returns the aspect ratio of a geometry; null if its lengths are not drawn to scale.
function aspectRatio(geometry) {
  const { left, right, bottom, top } = geometry.homeBox();
  const ratio = ((right - left) / (top - bottom)) * geometry.stretch;
  return geometry.numAxes === 1 || ratio > 6 || ratio < 1 / 6 ? null : ratio;
}

// Returns the height available to a group of pictures: wide ones are stacked, and need more.
export function maxHeight(geometry, height) {
  return (aspectRatio(geometry) ?? 1) > WIDE_RATIO ? 1.5 * height : height;
}

// Returns {frame, margins, area, isStacked, isBelow}: the layout of equal pictures with the largest area.
export function arrange(count, geometry, { width, height }) {
  const ratio = aspectRatio(geometry);
  const isCurve = geometry.numAxes === 1;
  const layouts = [true, false].slice(0, count > 1 ? 2 : 1).map((isStacked) => {
    const isBelow = !isCurve && (!isStacked || width < NARROW_WIDTH);
    const margins = Array.from({ length: count }, (_, n) => marginsOf({ n, count, isStacked, isBelow, isCurve, isMap: geometry.is_sphere }));
    const sum = (part) => margins.reduce((total, margin) => total + part(margin), 0);
    const across = (margin) => margin.left + margin.right;
    const down = (margin) => margin.top + margin.bottom + CAPTION;
    const available = isStacked
      ? { width: width - Math.max(...margins.map(across)), height: (Math.max(height, width < NARROW_WIDTH ? 460 * count : 0) - sum(down)) / count - GAP }
      : { width: (width - sum(across) - GAP * (count - 1)) / count, height: height - Math.max(...margins.map(down)) };
    const frame = fitFrame(available, ratio, isStacked ? 0.3 : 0.75);
    return { frame, margins, isStacked, area: frame.width * frame.height, isBelow };
  });
  return layouts.reduce((best, other) => (other.area > best.area ? other : best));
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

// heightPerWidth: of a frame without a fixed aspect ratio.
function fitFrame(available, ratio, heightPerWidth) {
  const [roomWidth, roomHeight] = [Math.max(60, available.width), Math.max(60, available.height)];
  if (ratio === null) return { width: roomWidth, height: Math.max(60, Math.min(roomHeight, heightPerWidth * roomWidth)) };
  const width = Math.min(roomWidth, roomHeight * ratio);
  return { width, height: width / ratio };
}

// Sets the margins of pictures and the sizes of their canvases.
export function applyLayout(pictures, { frame, margins }) {
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
