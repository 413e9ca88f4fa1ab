// Requests to the server and the decoding of its packets (see arrays.py for the format).

const UNREACHABLE = "The server does not answer: it was stopped, or the connection is lost. " +
  "Start gpo explore again, then reload this page: the address keeps the view.";

// Fetches an address; replaces the browser's network error by a message that says what to do.
export async function reach(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error(UNREACHABLE);
  }
}

export async function runMetadata() {
  const response = await reach("api/run");
  if (!response.ok) throw new Error(await errorMessage(response));
  return response.json();
}

// Sends the request of a panel. Returns {metadata, arrays}; every array is {data, shape}.
export async function post(panel, body) {
  return unpack(await postForBytes(panel, body));
}

// signal: aborts the request, and with it the computation. A quiet request does not mark the page as busy.
export async function postForBytes(panel, body, { signal, isQuiet = false } = {}) {
  if (!isQuiet) countPending(1);
  try {
    const response = await reach(`api/${panel}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    if (!response.ok) throw new Error(await errorMessage(response));
    return await response.arrayBuffer().catch(() => {
      throw new Error(UNREACHABLE);
    });
  } finally {
    if (!isQuiet) countPending(-1);
  }
}

// Returns the progress of long computations by panel: [done, total, description].
export async function progress() {
  return (await reach("api/progress")).json();
}

// Tells assistive technology whether a request is pending.
let numPending = 0;
function countPending(change) {
  numPending += change;
  document.body.setAttribute("aria-busy", String(numPending > 0));
}

async function errorMessage(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}

export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const { name, kind, shape, start } of header.arrays) {
    const count = shape.reduce((product, size) => product * size, 1);
    const ArrayType = { i4: Int32Array, f4: Float32Array, f8: Float64Array }[kind];
    const first = 8 + length + start;
    // A copy, because a view of float64 needs an offset that is a multiple of eight.
    const content = buffer.slice(first, first + count * ArrayType.BYTES_PER_ELEMENT);
    arrays[name] = { data: new ArrayType(content), shape };
  }
  return { metadata: header.metadata, arrays };
}

// Sends one request at a time. While an answer is pending, only the latest request is kept, so that
// dragging a slider leaves no queue. A request that was replaced resolves to null.
export class LatestRequest {
  constructor(panel) {
    this.panel = panel;
    this.isBusy = false;
    this.next = null;
    this.last = null;
  }

  send(body) {
    const key = JSON.stringify(body);
    if (this.last && this.last.key === key && !this.isBusy) return Promise.resolve(this.last.answer);
    return new Promise((resolve, reject) => {
      if (this.next) this.next.resolve(null);
      this.next = { body, key, resolve, reject };
      this.sendNext();
    });
  }

  async sendNext() {
    if (this.isBusy || !this.next) return;
    const { body, key, resolve, reject } = this.next;
    this.next = null;
    this.isBusy = true;
    const start = performance.now();
    try {
      const answer = await post(this.panel, body);
      answer.milliseconds = performance.now() - start;
      this.last = { key, answer };
      resolve(this.next ? null : answer);
    } catch (error) {
      if (this.next) resolve(null);
      else reject(error);
    } finally {
      this.isBusy = false;
      this.sendNext();
    }
  }
}
