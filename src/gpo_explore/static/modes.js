// The modes of a model and their cells on a map: by head, or by wave vector.

export class Modes {
  constructor({ variant, num_modes, num_heads, waves }) {
    this.isPaper = variant === "paper";
    this.count = num_modes;
    this.numHeads = num_heads;
    this.perHead = num_modes / num_heads;
    this.waves = waves;
    this.third = 0;
    if (waves) this.describeWaves(waves);
  }

  describeWaves({ limits, names, is_map: isMap }) {
    const last = limits.length - 1;
    this.offsets = limits.map((limit, axis) => (axis === last ? 0 : limit));
    this.sizes = limits.map((limit, axis) => (axis === last ? limit + 1 : 2 * limit + 1));
    this.across = isMap ? 1 : 0;
    this.up = limits.length === 1 ? undefined : isMap ? 0 : 1;
    this.names = names;
  }

  get columns() {
    return this.isPaper ? this.perHead : this.sizes[this.across];
  }

  get rows() {
    if (this.isPaper) return this.numHeads;
    return this.up === undefined ? 1 : this.sizes[this.up];
  }

  // Returns the mode of a cell of the map, whose first row is at the top.
  modeAt(place) {
    if (this.isPaper) return place;
    const numbers = Array(this.sizes.length).fill(0);
    numbers[this.across] = place % this.columns;
    if (this.up !== undefined) numbers[this.up] = this.rows - 1 - Math.floor(place / this.columns);
    if (numbers.length === 3) numbers[2] = this.third;
    return numbers.reduce((mode, number, axis) => mode * this.sizes[axis] + number, 0);
  }

  // Returns the cell of a mode; -1 if it is not in the shown slice.
  placeOf(mode) {
    if (this.isPaper) return mode;
    const numbers = this.indices(mode);
    if (numbers.length === 3 && numbers[2] !== this.third) return -1;
    const row = this.up === undefined ? 0 : this.rows - 1 - numbers[this.up];
    return row * this.columns + numbers[this.across];
  }

  indices(mode) {
    const numbers = [];
    for (let axis = this.sizes.length - 1; axis >= 0; axis--) {
      numbers.unshift(mode % this.sizes[axis]);
      mode = Math.floor(mode / this.sizes[axis]);
    }
    return numbers;
  }

  vector(mode) {
    return this.indices(mode).map((number, axis) => number - this.offsets[axis]);
  }

  name(mode) {
    if (!this.isPaper) return `wave (${this.vector(mode).join(", ")})`;
    return `head ${Math.floor(mode / this.perHead) + 1}, mode ${(mode % this.perHead) + 1}`;
  }

  // Returns the modes of the same head, or the waves of about the same wavenumber.
  group(mode) {
    const all = Array.from({ length: this.count }, (_, n) => n);
    if (this.isPaper) {
      const head = Math.floor(mode / this.perHead);
      return all.filter((other) => Math.floor(other / this.perHead) === head);
    }
    const wavenumber = Math.round(Math.hypot(...this.vector(mode)));
    return all.filter((other) => Math.round(Math.hypot(...this.vector(other))) === wavenumber);
  }

  groupName(mode) {
    if (this.isPaper) return `head ${Math.floor(mode / this.perHead) + 1}`;
    return `shell |k| ≈ ${Math.round(Math.hypot(...this.vector(mode)))}`;
  }

  labels() {
    if (this.isPaper) {
      return {
        across: "mode", up: "head", acrossTicks: ordinals(this.perHead), upTicks: ordinals(this.numHeads),
      };
    }
    const numbers = (axis) =>
      Array.from({ length: this.sizes[axis] }, (_, n) => String(n - this.offsets[axis]));
    const hasUp = this.up !== undefined;
    return {
      across: `wavenumber along ${this.names[this.across]}`,
      up: hasUp ? `along ${this.names[this.up]}` : "",
      acrossTicks: numbers(this.across),
      upTicks: hasUp ? numbers(this.up).reverse() : [""],
    };
  }
}

export const ordinals = (count) => Array.from({ length: count }, (_, n) => String(n + 1));
