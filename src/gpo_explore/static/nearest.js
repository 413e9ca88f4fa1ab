// Nearest-neighbour search among unstructured points, in one to three dimensions, by a grid of buckets.

export class Nearest {
  // coords: points by dim; periods: the period of every axis, 0 if it is not periodic.
  constructor(coords, dim, lower, periods) {
    this.coords = coords;
    this.dim = dim;
    this.periods = periods;
    const count = coords.length / dim;
    this.low = [];
    this.high = [];
    for (let axis = 0; axis < dim; axis++) {
      let low = Infinity;
      let high = -Infinity;
      for (let n = axis; n < coords.length; n += dim) {
        low = Math.min(low, coords[n]);
        high = Math.max(high, coords[n]);
      }
      this.low.push(periods[axis] ? lower[axis] : low);
      this.high.push(periods[axis] ? lower[axis] + periods[axis] : high);
    }
    const spans = this.low.map((low, axis) => this.high[axis] - low);
    const widest = Math.max(...spans) || 1;
    const side = Math.max(1, Math.round(count ** (1 / dim)));
    this.sizes = spans.map((span) => Math.max(1, Math.ceil((span / widest) * side - 1e-9)));
    this.cells = spans.map((span, axis) => span / this.sizes[axis] || 1);
    this.cell = Math.min(...this.cells);
    this.buckets = new Map();
    for (let n = 0; n < count; n++) {
      const key = this.key(this.bucketOf(coords.subarray(n * dim, n * dim + dim)));
      if (!this.buckets.has(key)) this.buckets.set(key, []);
      this.buckets.get(key).push(n);
    }
    this.maxDistance = this.typicalSpacing(count);
  }

  bucketOf(point) {
    return this.sizes.map((size, axis) => {
      const at = Math.floor((point[axis] - this.low[axis]) / this.cells[axis]);
      return Math.min(size - 1, Math.max(0, at));
    });
  }

  key(bucket) {
    return bucket.reduce((key, at, axis) => key * this.sizes[axis] + at, 0);
  }

  // Returns the index of the nearest point, -1 if there is none within maxDistance. A good guess, such
  // as the answer at the adjacent pixel, saves most of the search.
  find(point, { except = -1, maxDistance = Infinity, guess = -1 } = {}) {
    const home = this.bucketOf(point);
    let best = -1;
    let smallest = maxDistance * maxDistance;
    if (guess >= 0 && this.squared(point, guess) < smallest) {
      best = guess;
      smallest = this.squared(point, guess);
    }
    const rings = Math.max(...this.sizes);
    for (let ring = 0; ring <= rings; ring++) {
      if (ring > 1 && ((ring - 1) * this.cell) ** 2 > smallest) break;
      this.ring(home, ring, (bucket) => {
        for (const n of this.buckets.get(this.key(bucket)) ?? []) {
          if (n === except) continue;
          const squared = this.squared(point, n);
          if (squared < smallest) {
            smallest = squared;
            best = n;
          }
        }
      });
    }
    return best;
  }

  // Visits the buckets at distance `ring` from one, in the maximum norm.
  ring(home, ring, visit) {
    const bucket = [];
    const walk = (axis, isOuter) => {
      if (axis === this.dim) {
        if (isOuter || ring === 0) visit(bucket);
        return;
      }
      const size = this.sizes[axis];
      for (let step = -ring; step <= ring; step++) {
        let at = home[axis] + step;
        if (at < 0 || at >= size) {
          if (!this.periods[axis]) continue;
          at = ((at % size) + size) % size;
        }
        bucket[axis] = at;
        walk(axis + 1, isOuter || Math.abs(step) === ring);
      }
    };
    walk(0, false);
  }

  squared(point, n) {
    let sum = 0;
    for (let axis = 0; axis < this.dim; axis++) {
      let step = point[axis] - this.coords[n * this.dim + axis];
      const period = this.periods[axis];
      if (period) step -= period * Math.round(step / period);
      sum += step * step;
    }
    return sum;
  }

  // Returns three times the median distance between nearest neighbours.
  typicalSpacing(count) {
    const step = Math.max(1, Math.floor(count / 400));
    const distances = [];
    for (let n = 0; n < count; n += step) {
      const point = this.coords.subarray(n * this.dim, (n + 1) * this.dim);
      const other = this.find(point, { except: n });
      if (other >= 0) distances.push(Math.sqrt(this.squared(point, other)));
    }
    distances.sort((a, b) => a - b);
    return distances.length ? 3 * distances[distances.length >> 1] + 1e-12 : Infinity;
  }
}
