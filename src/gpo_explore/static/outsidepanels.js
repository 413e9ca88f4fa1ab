// Panels of other packages: the page loads the module of each and lets it draw into a section of its own.

import { showError } from "./problem.js";
import { make } from "./store.js";

export async function drawOutsidePanels(store) {
  await Promise.all(store.run.panels.map(({ name, title }) => drawPanel(store, name, title)));
}

// An error in the module of one panel is shown and leaves the rest of the page as it is.
async function drawPanel(store, name, title) {
  const id = `panel-${name}`;
  const container = make("div", { className: "scrolled" });
  const section = make("section", { id, className: "panel question" }, make("h2", { id: `${id}-title`, textContent: title }), container);
  section.setAttribute("aria-labelledby", `${id}-title`);
  document.querySelector("main").append(section);
  try {
    const { draw } = await import(`./${encodeURIComponent(id)}.js`);
    await draw(container, store);
  } catch (error) {
    showError(id, error);
  }
}
