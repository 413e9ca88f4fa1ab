// Light or dark theme, set before anything is drawn: that of the system, or the user's choice.

(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  // The user's choice; the browser may deny access to its storage.
  let chosen = null;
  try {
    chosen = localStorage.getItem("gpo-theme");
  } catch {}

  function apply() {
    root.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    const isDark = root.dataset.theme === "dark";
    document.getElementById("theme")?.setAttribute("aria-pressed", String(isDark));
    document.dispatchEvent(new Event("themechange"));
  }

  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("gpo-theme", chosen);
      } catch {}
      apply();
    });
  });
})();
