// Thousands of short streaks that move with a field of vectors, as weather maps show wind.

const TAIL = 14;
const RECORD = 0.045;
const AREA = 75;
const [LEAST, MOST] = [150, 4200];
const LIFE = [0.9, 2.6];

// Random numbers that are the same on every visit.
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

  // Follows another field; streaks stay where they are unless the picture is another.
  follow(raster) {
    const isSame = this.raster && this.raster.key === raster.key && this.raster.geometry === raster.geometry;
    this.raster = raster;
    if (isSame && this.count) return;
    const area = (raster.known.length / Math.max(1, raster.columns * raster.rows)) * raster.width * raster.height;
    this.count = raster.known.length ? Math.round(Math.min(MOST, Math.max(LEAST, area / AREA))) : 0;
    [this.x, this.y, this.left] = [0, 0, 0].map(() => new Float32Array(this.count));
    [this.tailX, this.tailY] = [0, 0].map(() => new Float32Array(this.count * TAIL));
    [this.head, this.since] = [0, 0];
    for (let n = 0; n < this.count; n++) this.sow(n, this.random() * LIFE[1]);
  }

  // Puts a streak somewhere a motion is known; its tail begins there.
  sow(n, left) {
    const { known, columns, rows, width, height } = this.raster;
    const cell = known[Math.floor(this.random() * known.length)];
    this.x[n] = (((cell % columns) + this.random()) / columns) * width;
    this.y[n] = ((Math.floor(cell / columns) + this.random()) / rows) * height;
    this.left[n] = left;
    for (let k = 0; k < TAIL; k++) {
      this.tailX[k * this.count + n] = this.x[n];
      this.tailY[k * this.count + n] = this.y[n];
    }
  }

  // Moves by some seconds; pace: steps of the model per second.
  advance(seconds, pace) {
    for (let rest = seconds; rest > 1e-6 && this.count; rest -= RECORD) {
      const part = Math.min(rest, RECORD);
      this.move(part * pace, part);
      this.since += part;
      if (this.since >= RECORD - 1e-6) this.record();
    }
  }

  move(steps, seconds) {
    const { raster } = this;
    const { right, down, width, height, closes } = raster;
    for (let n = 0; n < this.count; n++) {
      this.left[n] -= seconds;
      // One that has ended stands until its tail has caught up.
      if (this.left[n] <= 0) continue;
      const cell = raster.cellAt(this.x[n], this.y[n]);
      if (cell < 0 || !Number.isFinite(right[cell]) || !Number.isFinite(down[cell])) {
        this.left[n] = 0;
        continue;
      }
      let x = this.x[n] + steps * right[cell];
      let y = this.y[n] + steps * down[cell];
      if (closes[0]) x = ((x % width) + width) % width;
      if (closes[1]) y = ((y % height) + height) % height;
      this.x[n] = x;
      this.y[n] = y;
    }
  }

  record() {
    this.since = 0;
    this.head = (this.head + 1) % TAIL;
    const start = this.head * this.count;
    for (let n = 0; n < this.count; n++) {
      if (this.left[n] < -RECORD * TAIL) this.sow(n, LIFE[0] + this.random() * (LIFE[1] - LIFE[0]));
      this.tailX[start + n] = this.x[n];
      this.tailY[start + n] = this.y[n];
    }
  }

  // Lets tails grow without an animation.
  settle(pace) {
    this.advance(RECORD * TAIL, pace);
  }

  // Draws; the nearer to the head, the stronger.
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

  // Adds the pieces of one age to the path; what went around a periodic end is not drawn across.
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
