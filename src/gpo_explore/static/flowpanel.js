// The flow panel: streaks of the learned motion and of the true flow, tracers that a rollout advects,
// and statistics of their agreement.

import { ablationBody } from "./ablation.js";
import { applyLayout, arrange } from "./arrange.js";
import { drawCoast } from "./coast.js";
import { FlowNumbers } from "./flownumbers.js";
import { FlowSide, paces } from "./flowside.js";
import { describe, describePace, HINT, motionAt } from "./flowwords.js";
import { themeColour } from "./picture.js";
import { showError } from "./problem.js";
import { fieldOf, labelOf, scaleFor } from "./shownfield.js";
import { column, element } from "./store.js";
import { LatestRequest } from "./requests.js";
import { XtDiagram } from "./xtdiagram.js";

const DEBOUNCE = 250;
const PIXELS_PER_SECOND = 42;
const STEPS_PER_SECOND = 1.4;
const MAX_TRACERS = 16;
const SPEEDS = [0.25, 0.5, 1, 2, 4];
const [MAX_HEIGHT, MIN_HEIGHT, HEIGHT_OF_CONTROLS] = [620, 300, 330];

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
    this.latest = Object.fromEntries(["motion", "flow", "tracers"].map((name) => [name, new LatestRequest(name)]));
    const on = { query: (point) => this.addTracer(point), hover: (position, view) => this.hover(position, view), key: (key) => this.onKey(key) };
    const names = store.run.velocity ? ["flow", "flow-true"] : ["flow"];
    this.sides = names.map((id) => new FlowSide(store, id, on));
    element("flow-true").parentElement.hidden = names.length < 2;
    Object.assign(this, { time: 1, isPlaying: false, isVisible: false, isNeeded: false, numSteps: 1 });
    this.reducedMotion = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.isStreaming = !this.reducedMotion.matches;
    this.setUpControls();
    store.on(["geometry"], () => this.arrange());
    store.on(["example", "ablation", "advector", "step"], () => this.loadSoon());
    store.on(["tracers"], () => this.loadTracers());
    store.on(["variable", "box", "theme", "fitsColours", "isSmooth", "coast", "rollout", "frames"], () => this.draw());
    window.addEventListener("resize", () => this.arrange());
    document.addEventListener("visibilitychange", () => this.schedule());
    new IntersectionObserver(([{ isIntersecting }]) => this.setVisible(isIntersecting), { rootMargin: "200px" }).observe(element("flow-panel"));
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
    element("drop-grid").addEventListener("click", () => this.addGrid());
    element("drop-back").addEventListener("click", () => store.set({ tracers: store.tracers.slice(0, -1) }));
    element("drop-none").addEventListener("click", () => store.set({ tracers: [] }));
    const update = () => {
      element("flow-speed").value = store.flowSpeed;
      element("flow-speed-text").textContent = `${SPEEDS[store.flowSpeed]} ×`;
      describePace(this);
    };
    store.on(["flowSpeed"], update);
    update();
    element("flow-hover").textContent = HINT;
    this.reducedMotion.addEventListener("change", () => this.stream(!this.reducedMotion.matches));
    this.stream(this.isStreaming);
  }

  get speed() {
    return SPEEDS[this.store.flowSpeed];
  }

  get advector() {
    return this.store.advector ?? this.motion?.metadata.best ?? 0;
  }

  get isLine() {
    return this.store.geometry?.numAxes === 1;
  }

  // Loads when the panel first approaches the screen, and pauses while it is not visible.
  setVisible(isVisible) {
    this.isVisible = isVisible;
    if (isVisible && !this.isNeeded) {
      this.isNeeded = true;
      this.load();
    }
    this.schedule();
  }

  stream(isStreaming) {
    this.isStreaming = isStreaming;
    const button = element("flow-stream");
    button.textContent = isStreaming ? "❚❚ Pause" : "▶ Stream";
    button.setAttribute("aria-pressed", String(isStreaming));
    button.title = !isStreaming && this.reducedMotion.matches ? "Paused: your system asks for reduced motion." : "";
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

  addTracer(point) {
    this.store.set({ tracers: [...this.store.tracers, point].slice(-MAX_TRACERS) });
  }

  // Replaces the tracers by nine, spread evenly over the view; those at masked sites are left out.
  addGrid() {
    const { box, geometry } = this.store;
    const positions = [1, 3, 5].flatMap((up) => [1, 3, 5].map((across) =>
      [box.left + (across / 6) * (box.right - box.left), box.bottom + (up / 6) * (box.top - box.bottom)]));
    const isActive = ([x, y]) => geometry.active[geometry.siteAt(x, y)];
    this.store.set({ tracers: positions.filter(isActive).map(([x, y]) => geometry.point(x, y)) });
  }

  loadSoon() {
    if (!this.isNeeded) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), this.isPlaying ? 0 : DEBOUNCE);
  }

  // Loads the statistics of all particles, then the displacements of the selected one in the selected step.
  async load() {
    const { store } = this;
    try {
      if (!this.motion) {
        element("flow-seen").textContent = "Measuring the displacements of all particles …";
        this.motion = await this.latest.motion.send({});
        if (!this.motion) return;
      }
      const { example } = store;
      const isNew = example !== this.example || store.ablation !== this.ablation;
      const step = isNew ? 1 : Math.min(store.step, this.numSteps);
      const flow = await this.latest.flow.send({ example, ablation: ablationBody(store.ablation), advector: this.advector, step });
      if (!flow) return;
      Object.assign(this, { flow, example, ablation: store.ablation, shownStep: step, numSteps: flow.metadata.num_steps });
      showError("flow", null);
      if (isNew && store.step > 1 && this.numSteps > 1) this.loadSoon();
      if (isNew || this.advector !== this.tracedAdvector) this.loadTracers();
      if (!this.isPlaying) this.time = step;
      this.draw();
    } catch (error) {
      showError("flow", error);
    }
  }

  async loadTracers() {
    const { store } = this;
    if (!this.isNeeded || !this.motion) return;
    // An address may come from a run with another number of dimensions.
    const tracers = store.tracers.filter((point) => point.length === store.geometry.numAxes);
    const points = this.isLine ? this.diagram.starts() : tracers;
    this.tracedAdvector = this.advector;
    if (!points.length) {
      this.tracers = null;
      return this.draw();
    }
    element("tracer-words").textContent = "Advecting the tracers …";
    try {
      const body = { example: store.example, ablation: ablationBody(store.ablation), advector: this.advector, points };
      const answer = await this.latest.tracers.send(body);
      if (!answer) return;
      this.tracers = answer;
      showError("tracers", null);
    } catch (error) {
      this.tracers = null;
      showError("tracers", error);
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
      const height = Math.max(MIN_HEIGHT, Math.min(MAX_HEIGHT, window.innerHeight - HEIGHT_OF_CONTROLS));
      applyLayout(this.sides.map(({ picture }) => picture), arrange(this.sides.length, geometry, { width: room.clientWidth, height }));
    }
    this.draw();
  }

  // Returns the field that a step starts from: the forecast in the model's picture, else the truth.
  startField(isModel) {
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
    this.numbers.mark(this.advector);
    this.numbers.show(this.motion.metadata, this.flow.metadata);
    describe(this);
    if (this.isLine) {
      this.diagram.show(store, this.tracers);
      return;
    }
    const { geometry, box, isSmooth, coast } = store;
    const over = (context, picture) => coast && drawCoast(context, picture, coast);
    this.sides.forEach((side, n) => {
      const { values, scale, units } = this.startField(n === 0);
      side.show({ geometry, box, values, scale, units, isSmooth, over }, flow.arrays[n ? "true" : "model"]);
    });
    const rasters = this.sides.map(({ raster }) => raster);
    if (!rasters[0]) return;
    this.paces = paces(rasters, PIXELS_PER_SECOND);
    describePace(this);
    this.colours = { streak: themeColour("streak"), model: themeColour("first"), true: themeColour("second") };
    if (!this.isStreaming) this.sides.forEach((side, n) => side.advance(0, this.paces[n] * this.speed));
    this.paint();
    this.schedule();
  }

  // Advances the streaks, and the time while the rollout plays; draws; schedules the next frame.
  tick(now) {
    this.frameRequest = null;
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
      const ordered = all.map((tracers) => ({ ...tracers, isOther: tracers.name !== own })).sort((a, b) => b.isOther - a.isOther);
      side.paint(ordered, this.time, this.colours.streak);
    });
  }

  schedule() {
    const isNeeded = this.isVisible && !document.hidden && this.paces && (this.isStreaming || this.isPlaying);
    if (!isNeeded) this.last = undefined;
    else this.frameRequest ??= requestAnimationFrame((now) => this.tick(now));
  }

  hover(position, view) {
    for (const { view: other } of this.sides) other.mark(other === view ? null : position);
    element("flow-hover").textContent = position && this.flow ? motionAt(this, position, view) : HINT;
  }
}
