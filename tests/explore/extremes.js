// Draws the panel of test_outside_panel.py: the largest value of the shown variable.

import { showError } from "./problem.js";
import { LatestRequest } from "./requests.js";
import { make } from "./store.js";

export async function draw(container, store) {
  const request = new LatestRequest("extremes");
  const text = make("p", { id: "extremes-text" });
  container.append(text);
  const show = async () => {
    try {
      const answer = await request.send({ example: store.example, variable: store.variable, side: "largest" });
      if (answer) text.textContent = `Largest: ${answer.metadata.value.toFixed(3)}`;
      showError("extremes", null);
    } catch (error) {
      showError("extremes", error);
    }
  };
  store.on(["example", "variable"], show);
  await show();
}
