// What went wrong, in one line under the controls, until the same thing goes well.

const problems = new Map();

export function complain(what, error) {
  if (error) problems.set(what, error.message ?? String(error));
  else problems.delete(what);
  const line = document.getElementById("problem");
  line.hidden = problems.size === 0;
  line.textContent = [...new Set(problems.values())].join(" ");
}
