// The panel of the flow: the learned motion and the true one as streaks, tracers that a rollout
// carries, and numbers that say whether the motion is that of the field.

import { plain } from "./ablation.js";
import { arrange, settle } from "./arrange.js";
import { drawCoast } from "./coast.js";
import { FlowNumbers } from "./flownumbers.js";
import { FlowSide, paces } from "./flowside.js";
import { describe, describePace, HINT, motionAt } from "./flowwords.js";
import { themeColour } from "./picture.js";
import { complain } from "./problem.js";
import { fieldOf, labelOf, scaleFor } from "./shownfield.js";
import { column, element } from "./store.js";
import { Latest } from "./wire.js";
import { XtDiagram } from "./xtdiagram.js";

const QUIET = 250;
const PIXELS_PER_SECOND = 42;
const STEPS_PER_SECOND = 1.4;
const MOST_TRACERS = 16;
const SPEEDS = [0.25, 0.5, 1, 2, 4];
const [HEIGHT, LEAST_HEIGHT, BESIDE] = [620, 300, 330];

export class FlowPanel {
  constructor(store) {
    this.store = store;
    const reason = store.run.reasons.flow;
    if (reason) {
      element("flow-seen").textContent = reason;
      for (const part of document.querySelectorAll("#flow-panel .flows, #flow-panel .head > :not(h2)")) part.hidden = true;
      return;
    }
    this.numbers = new FlowNumbers(store);
    this.latest = Object.fromEntries(["motion", "flow", "tracers"].map((name) => [name, new Latest(name)]));
    const on = { drop: (point) => this.drop(point), hover: (place, view) => this.hover(place, view), key: (key) => this.onKey(key) };
    const names = store.run.velocity ? ["flow", "flow-true"] : ["flow"];
    this.sides = names.map((id) => new FlowSide(store, id, on));
    element("flow-true").parentElement.hidden = names.length < 2;
    Object.assign(this, { time: 1, isPlaying: false, isSeen: false, isWanted: false, numSteps: 1 });
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.isStreaming = !this.still.matches;
    this.setUpControls();
    store.on(["geometry"], () => this.arrange());
    store.on(["example", "ablation", "carrier", "step"], () => this.loadSoon());
    store.on(["tracers"], () => this.loadTracers());
    store.on(["variable", "box", "theme", "fitsColours", "isSmooth", "coast", "rollout", "frames"], () => this.draw());
    window.addEventListener("resize", () => this.arrange());
    document.addEventListener("visibilitychange", () => this.schedule());
    new IntersectionObserver(([{ isIntersecting }]) => this.see(isIntersecting), { rootMargin: "200px" }).observe(element("flow-panel"));
  }

  setUpControls() {
    const { store } = this;
    element("flow-stream").addEventListener("click", () => this.stream(!this.isStreaming));
    element("play-flow").addEventListener("click", () => this.play(!this.isPlaying));
    element("flow-step").addEventListener("input", (event) => {
      this.play(false);
      store.set({ step: Number(event.target.value) });
    });
    element("flow-speed").addEventListener("input", (event) => store.set({ flowSpeed: Number(event.target.value) }));
    element("drop-grid").addEventListener("click", () => this.dropGrid());
    element("drop-back").addEventListener("click", () => store.set({ tracers: store.tracers.slice(0, -1) }));
    element("drop-none").addEventListener("click", () => store.set({ tracers: [] }));
    const follow = () => {
      element("flow-speed").value = store.flowSpeed;
      element("flow-speed-text").textContent = `${SPEEDS[store.flowSpeed]} ×`;
      describePace(this);
    };
    store.on(["flowSpeed"], follow);
    follow();
    element("flow-hover").textContent = HINT;
    this.still.addEventListener("change", () => this.stream(!this.still.matches));
    this.stream(this.isStreaming);
  }

  get speed() {
    return SPEEDS[this.store.flowSpeed];
  }

  get carrier() {
    return this.store.carrier ?? this.motion?.metadata.best ?? 0;
  }

  get isLine() {
    return this.store.geometry?.numAxes === 1;
  }

  // Loads when the panel comes near, and rests when it is out of sight.
  see(isSeen) {
    this.isSeen = isSeen;
    if (isSeen && !this.isWanted) {
      this.isWanted = true;
      this.load();
    }
    this.schedule();
  }

  stream(isStreaming) {
    this.isStreaming = isStreaming;
    const button = element("flow-stream");
    button.textContent = isStreaming ? "❚❚ Pause" : "▶ Stream";
    button.setAttribute("aria-pressed", String(isStreaming));
    button.title = !isStreaming && this.still.matches ? "Paused: your system asks for little motion." : "";
    this.schedule();
  }

  play(isPlaying) {
    this.isPlaying = isPlaying && this.numSteps > 1;
    const button = element("play-flow");
    button.textContent = this.isPlaying ? "❚❚" : "▶";
    button.setAttribute("aria-pressed", String(this.isPlaying));
    this.time = this.isPlaying ? (this.store.step >= this.numSteps ? 0 : this.store.step - 1) : this.store.step;
    this.schedule();
  }

  onKey(key) {
    const { store } = this;
    const faster = { ">": 1, "<": -1 }[key];
    if (faster) store.set({ flowSpeed: Math.min(SPEEDS.length - 1, Math.max(0, store.flowSpeed + faster)) });
    else if (key === " ") this.stream(!this.isStreaming);
    else if (key === "Backspace" || key === "Delete") store.set({ tracers: store.tracers.slice(0, -1) });
    else return false;
    return true;
  }

  drop(point) {
    this.store.set({ tracers: [...this.store.tracers, point].slice(-MOST_TRACERS) });
  }

  // Drops tracers evenly over what is seen, where there are sites.
  dropGrid() {
    const { box, geometry } = this.store;
    const places = [1, 3, 5].flatMap((up) => [1, 3, 5].map((across) =>
      [box.left + (across / 6) * (box.right - box.left), box.bottom + (up / 6) * (box.top - box.bottom)]));
    const isKnown = ([x, y]) => geometry.known[geometry.siteAt(x, y)];
    this.store.set({ tracers: places.filter(isKnown).map(([x, y]) => geometry.point(x, y)) });
  }

  loadSoon() {
    if (!this.isWanted) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), this.isPlaying ? 0 : QUIET);
  }

  // Asks what the particles are worth, then how the chosen one moves in the chosen step.
  async load() {
    const { store } = this;
    try {
      if (!this.motion) {
        element("flow-seen").textContent = "Measuring what every particle carries …";
        this.motion = await this.latest.motion.ask({});
        if (!this.motion) return;
      }
      const { example } = store;
      const isNew = example !== this.example || store.ablation !== this.ablation;
      const step = isNew ? 1 : Math.min(store.step, this.numSteps);
      const flow = await this.latest.flow.ask({ example, ablation: plain(store.ablation), carrier: this.carrier, step });
      if (!flow) return;
      Object.assign(this, { flow, example, ablation: store.ablation, shownStep: step, numSteps: flow.metadata.num_steps });
      complain("flow", null);
      if (isNew && store.step > 1 && this.numSteps > 1) this.loadSoon();
      if (isNew || this.carrier !== this.traced) this.loadTracers();
      if (!this.isPlaying) this.time = step;
      this.draw();
    } catch (error) {
      complain("flow", error);
    }
  }

  async loadTracers() {
    const { store } = this;
    if (!this.isWanted || !this.motion) return;
    // An address may come from a run in another number of dimensions.
    const dropped = store.tracers.filter((point) => point.length === store.geometry.numAxes);
    const points = this.isLine ? this.diagram.starts() : dropped;
    this.traced = this.carrier;
    if (!points.length) {
      this.tracers = null;
      return this.draw();
    }
    element("tracer-words").textContent = "The rollout takes them along …";
    try {
      const body = { example: store.example, ablation: plain(store.ablation), carrier: this.carrier, points };
      const tracers = await this.latest.tracers.ask(body);
      if (!tracers) return;
      this.tracers = tracers;
      complain("tracers", null);
    } catch (error) {
      this.tracers = null;
      complain("tracers", error);
    }
    this.draw();
  }

  arrange() {
    const { geometry } = this.store;
    if (!geometry) return;
    const room = element("flow-pictures");
    room.classList.toggle("line", this.isLine);
    if (this.isLine) {
      this.diagram ??= new XtDiagram(element("flow"), geometry);
      for (const part of document.querySelectorAll("#flow-panel .streaming, #flow-panel .head > :not(h2)")) part.hidden = true;
      element("flow-true").parentElement.hidden = true;
    } else {
      const height = Math.max(LEAST_HEIGHT, Math.min(HEIGHT, window.innerHeight - BESIDE));
      settle(this.sides.map(({ picture }) => picture), arrange(this.sides.length, geometry, { width: room.clientWidth, height }));
    }
    this.draw();
  }

  // Returns the field that a step starts from: forecast on the side of the model, else the truth.
  given(isModel) {
    const { store } = this;
    const output = store.run.outputs[store.variable];
    const frame = (this.shownStep ?? 1) - 2;
    const rollout = store.rollout?.arrays;
    if (frame < 0 || !rollout || frame >= rollout.truth.shape[0]) return fieldOf(store, "given");
    const [truth, forecast] = ["truth", "forecast"].map((name) => column(rollout[name], store.variable, frame));
    const values = isModel ? forecast : truth;
    return { values, scale: scaleFor(store, output, [truth]), units: labelOf(output), name: output.name };
  }

  draw() {
    const { store, flow } = this;
    if (!flow || !store.geometry || !store.frames) return;
    if (flow.arrays.model.shape[0] !== store.geometry.numSites) return;
    this.numbers.mark(this.carrier);
    this.numbers.show(this.motion.metadata, this.flow.metadata);
    describe(this);
    if (this.isLine) {
      this.diagram.show(store, this.tracers);
      return;
    }
    const { geometry, box, isSmooth, coast } = store;
    const over = (context, picture) => coast && drawCoast(context, picture, coast);
    this.sides.forEach((side, n) => {
      const { values, scale, units } = this.given(n === 0);
      side.show({ geometry, box, values, scale, units, isSmooth, over }, flow.arrays[n ? "true" : "model"]);
    });
    const [model, true_] = this.sides.map(({ raster }) => raster);
    if (!model) return;
    this.paces = paces(model, true_, PIXELS_PER_SECOND);
    describePace(this);
    this.colours = { streak: themeColour("streak"), model: themeColour("first"), true: themeColour("second") };
    if (!this.isStreaming) this.sides.forEach((side, n) => side.advance(0, this.paces[n] * this.speed));
    this.paint();
    this.schedule();
  }

  // Advances streaks and, where the rollout plays, the time; draws; and goes on while it is seen.
  tick(now) {
    this.waiting = null;
    const seconds = Math.min(0.08, (now - (this.last ?? now)) / 1000);
    this.last = now;
    if (this.isPlaying) {
      this.time += seconds * STEPS_PER_SECOND * this.speed;
      if (this.time >= this.numSteps) this.time = 0;
      this.store.set({ step: Math.min(this.numSteps, Math.floor(this.time) + 1) });
    }
    if (this.isStreaming) this.sides.forEach((side, n) => side.raster && side.advance(seconds, this.paces[n] * this.speed));
    this.paint();
    this.schedule();
  }

  paint() {
    if (!this.colours) return;
    const paths = this.tracers?.arrays ?? {};
    const all = ["true", "model"].filter((name) => paths[name]).map((name) => ({ name, path: paths[name], colour: this.colours[name] }));
    this.sides.forEach((side, n) => {
      const own = n ? "true" : "model";
      const ordered = all.map((one) => ({ ...one, isOther: one.name !== own })).sort((one, other) => other.isOther - one.isOther);
      side.paint(ordered, this.time, this.colours.streak);
    });
  }

  schedule() {
    const isNeeded = this.isSeen && !document.hidden && this.paces && (this.isStreaming || this.isPlaying);
    if (!isNeeded) this.last = undefined;
    else this.waiting ??= requestAnimationFrame((now) => this.tick(now));
  }

  hover(place, view) {
    for (const { view: other } of this.sides) other.point(other === view ? null : place);
    element("flow-hover").textContent = place && this.flow ? motionAt(this, place, view) : HINT;
  }
}
