// What went wrong, in one line under the controls; the next answer that comes clears it.

export function complain(error) {
  const line = document.getElementById("problem");
  line.hidden = !error;
  line.textContent = error ? (error.message ?? String(error)) : "";
}
