// Error messages in one line below the controls; each stays until the same source succeeds.

const messages = new Map();

// error: null after a success.
export function showError(source, error) {
  if (error) messages.set(source, error.message ?? String(error));
  else messages.delete(source);
  const line = document.getElementById("problem");
  line.hidden = messages.size === 0;
  line.textContent = [...new Set(messages.values())].join(" ");
}
