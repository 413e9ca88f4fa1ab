// Draws the panel of test_outside_panel.py: the largest value of the shown variable.

import { complain } from "./problem.js";
import { make } from "./store.js";
import { Latest } from "./wire.js";

export async function draw(container, store) {
  const latest = new Latest("extremes");
  const text = make("p", { id: "extremes-text" });
  container.append(text);
  const show = async () => {
    try {
      const answer = await latest.ask({ example: store.example, variable: store.variable, side: "largest" });
      if (answer) text.textContent = `Largest: ${answer.metadata.value.toFixed(3)}`;
      complain("extremes", null);
    } catch (error) {
      complain("extremes", error);
    }
  };
  store.on(["example", "variable"], show);
  await show();
}
