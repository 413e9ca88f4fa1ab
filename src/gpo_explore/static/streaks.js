// Thousands of short streaks that move along a vector field, as on weather maps of wind.

const TAIL = 14;
const TIME_STEP = 0.045;
const PIXELS_PER_STREAK = 75;
const [MIN_STREAKS, MAX_STREAKS] = [150, 4200];
const LIFETIME = [0.9, 2.6];

// Returns a generator of random numbers, the same on every visit.
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export class Streaks {
  constructor() {
    this.random = generator(7);
    this.count = 0;
  }

  // Switches to another vector field; streaks keep their positions if the view is the same.
  follow(raster) {
    const isSame = this.raster && this.raster.key === raster.key && this.raster.geometry === raster.geometry;
    this.raster = raster;
    if (isSame && this.count) return;
    const area = (raster.valid.length / Math.max(1, raster.columns * raster.rows)) * raster.width * raster.height;
    this.count = raster.valid.length ? Math.round(Math.min(MAX_STREAKS, Math.max(MIN_STREAKS, area / PIXELS_PER_STREAK))) : 0;
    [this.x, this.y, this.left] = [0, 0, 0].map(() => new Float32Array(this.count));
    [this.tailX, this.tailY] = [0, 0].map(() => new Float32Array(this.count * TAIL));
    [this.head, this.since] = [0, 0];
    for (let n = 0; n < this.count; n++) this.seed(n, this.random() * LIFETIME[1]);
  }

  // Places a streak at a random valid cell, with its tail.
  seed(n, left) {
    const { valid, columns, rows, width, height } = this.raster;
    const cell = valid[Math.floor(this.random() * valid.length)];
    this.x[n] = (((cell % columns) + this.random()) / columns) * width;
    this.y[n] = ((Math.floor(cell / columns) + this.random()) / rows) * height;
    this.left[n] = left;
    for (let k = 0; k < TAIL; k++) {
      this.tailX[k * this.count + n] = this.x[n];
      this.tailY[k * this.count + n] = this.y[n];
    }
  }

  // Advances the streaks in time; pace: steps of the model per second.
  advance(seconds, pace) {
    for (let rest = seconds; rest > 1e-6 && this.count; rest -= TIME_STEP) {
      const part = Math.min(rest, TIME_STEP);
      this.move(part * pace, part);
      this.since += part;
      if (this.since >= TIME_STEP - 1e-6) this.record();
    }
  }

  move(steps, seconds) {
    const { raster } = this;
    const { right, down, width, height, periodic } = raster;
    for (let n = 0; n < this.count; n++) {
      this.left[n] -= seconds;
      // A streak that has ended waits until its tail has caught up.
      if (this.left[n] <= 0) continue;
      const cell = raster.cellAt(this.x[n], this.y[n]);
      if (cell < 0 || !Number.isFinite(right[cell]) || !Number.isFinite(down[cell])) {
        this.left[n] = 0;
        continue;
      }
      let x = this.x[n] + steps * right[cell];
      let y = this.y[n] + steps * down[cell];
      if (periodic[0]) x = ((x % width) + width) % width;
      if (periodic[1]) y = ((y % height) + height) % height;
      this.x[n] = x;
      this.y[n] = y;
    }
  }

  record() {
    this.since = 0;
    this.head = (this.head + 1) % TAIL;
    const start = this.head * this.count;
    for (let n = 0; n < this.count; n++) {
      if (this.left[n] < -TIME_STEP * TAIL) this.seed(n, LIFETIME[0] + this.random() * (LIFETIME[1] - LIFETIME[0]));
      this.tailX[start + n] = this.x[n];
      this.tailY[start + n] = this.y[n];
    }
  }

  // Grows the tails without drawing.
  warmUp(pace) {
    this.advance(TIME_STEP * TAIL, pace);
  }

  // Draws the streaks, which fade towards their tails.
  draw(context, colour) {
    context.strokeStyle = colour;
    context.lineWidth = 1.15;
    context.lineCap = "round";
    for (let age = TAIL - 1; age >= 0; age--) {
      context.globalAlpha = 0.9 * (1 - age / TAIL) ** 1.4;
      context.beginPath();
      this.trace(context, age);
      context.stroke();
    }
    context.globalAlpha = 1;
    context.lineCap = "butt";
  }

  // Adds the segments of one age to the path, except those that wrap around a periodic boundary.
  trace(context, age) {
    const { count, tailX, tailY, raster } = this;
    const older = ((this.head - age + TAIL) % TAIL) * count;
    const newer = ((this.head - age + 1 + TAIL) % TAIL) * count;
    const [wide, high] = [raster.width / 2, raster.height / 2];
    for (let n = 0; n < count; n++) {
      const x = age ? tailX[newer + n] : this.x[n];
      const y = age ? tailY[newer + n] : this.y[n];
      const [fromX, fromY] = [tailX[older + n], tailY[older + n]];
      if ((x === fromX && y === fromY) || Math.abs(x - fromX) > wide || Math.abs(y - fromY) > high) continue;
      context.moveTo(fromX, fromY);
      context.lineTo(x, y);
    }
  }
}
