// Settings of the page and answers of the server; listeners are called once after a change.

export class Store {
  constructor(values) {
    Object.assign(this, values);
    this.listeners = [];
    this.changed = new Set();
  }

  on(names, listener) {
    this.listeners.push({ names, listener });
  }

  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (this[name] === value) continue;
      this[name] = value;
      this.changed.add(name);
    }
    if (this.changed.size && !this.isScheduled) {
      this.isScheduled = true;
      queueMicrotask(() => this.notify());
    }
  }

  notify() {
    const changed = this.changed;
    this.changed = new Set();
    this.isScheduled = false;
    for (const { names, listener } of this.listeners) {
      if (names.some((name) => changed.has(name))) listener();
    }
  }
}

// Returns one column of a row-major array, from the matrix of index `start`.
export function column({ data, shape }, number, start = 0) {
  const [rows, columns] = shape.slice(-2);
  const values = new (data instanceof Float64Array ? Float64Array : Float32Array)(rows);
  const first = start * rows * columns + number;
  for (let n = 0; n < rows; n++) values[n] = data[first + n * columns];
  return values;
}

export const element = (id) => document.getElementById(id);

// Returns a new element with these properties and children.
export function make(tag, properties = {}, ...children) {
  const created = Object.assign(document.createElement(tag), properties);
  created.append(...children);
  return created;
}
