// Requests to the server, and packets of arrays back: see arrays.py for the bytes.

const GONE = "The server does not answer: it has ended, or the connection is lost. " +
  "Start gpo explore again, then reload this page: the address keeps the view.";

// Fetches; says in words what a browser says with a type error.
export async function reach(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error(GONE);
  }
}

export async function runMetadata() {
  const response = await reach("api/run");
  if (!response.ok) throw new Error(await reason(response));
  return response.json();
}

// Returns {metadata, arrays}: every array is {data, shape}, a view of the bytes that came.
export async function ask(what, body) {
  return unpack(await bytes(what, body));
}

// signal: ends the wait, and with it the work. What is quiet leaves the page idle meanwhile.
export async function bytes(what, body, { signal, isQuiet = false } = {}) {
  if (!isQuiet) count(1);
  try {
    const response = await reach(`api/${what}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    if (!response.ok) throw new Error(await reason(response));
    return await response.arrayBuffer().catch(() => {
      throw new Error(GONE);
    });
  } finally {
    if (!isQuiet) count(-1);
  }
}

// Returns how far what takes long has come, by its name: [done, of, what].
export async function progress() {
  return (await reach("api/progress")).json();
}

// Tells readers of the page whether an answer is under way.
let underWay = 0;
function count(step) {
  underWay += step;
  document.body.setAttribute("aria-busy", String(underWay > 0));
}

async function reason(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

export function unpack(buffer) {
  const words = new DataView(buffer);
  const length = words.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const { name, kind, shape, start } of header.arrays) {
    const count = shape.reduce((product, size) => product * size, 1);
    const Kind = { i4: Int32Array, f4: Float32Array, f8: Float64Array }[kind];
    const first = 8 + length + start;
    // A copy: numbers of eight bytes may begin anywhere between two of four.
    const content = buffer.slice(first, first + count * Kind.BYTES_PER_ELEMENT);
    arrays[name] = { data: new Kind(content), shape };
  }
  return { metadata: header.metadata, arrays };
}

// Asks one thing at a time. While an answer is under way only the last wish is remembered, so a
// slider that is dragged never leaves a queue behind. Resolves to null where a later wish came.
export class Latest {
  constructor(what) {
    this.what = what;
    this.isBusy = false;
    this.wish = null;
    this.last = null;
  }

  ask(body) {
    const key = JSON.stringify(body);
    if (this.last && this.last.key === key && !this.isBusy) return Promise.resolve(this.last.answer);
    return new Promise((resolve, reject) => {
      if (this.wish) this.wish.resolve(null);
      this.wish = { body, key, resolve, reject };
      this.next();
    });
  }

  async next() {
    if (this.isBusy || !this.wish) return;
    const { body, key, resolve, reject } = this.wish;
    this.wish = null;
    this.isBusy = true;
    const start = performance.now();
    try {
      const answer = await ask(this.what, body);
      answer.milliseconds = performance.now() - start;
      this.last = { key, answer };
      resolve(this.wish ? null : answer);
    } catch (error) {
      if (this.wish) resolve(null);
      else reject(error);
    } finally {
      this.isBusy = false;
      this.next();
    }
  }
}
