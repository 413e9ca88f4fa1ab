// What the page is set to; whoever depends on a setting is called once after it changed.

export class Store {
  constructor(values) {
    Object.assign(this, values);
    this.listeners = [];
    this.changed = new Set();
  }

  on(names, call) {
    this.listeners.push({ names, call });
  }

  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (this[name] === value) continue;
      this[name] = value;
      this.changed.add(name);
    }
    if (this.changed.size && !this.isWaiting) {
      this.isWaiting = true;
      queueMicrotask(() => this.tell());
    }
  }

  tell() {
    const changed = this.changed;
    this.changed = new Set();
    this.isWaiting = false;
    for (const { names, call } of this.listeners) {
      if (names.some((name) => changed.has(name))) call();
    }
  }
}

// Returns one column of rows that lie one after the other.
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
