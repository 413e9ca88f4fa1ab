// Light or dark, before anything is drawn: as the system says, until the button says otherwise.

(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  function stored() {
    try {
      return localStorage.getItem("gpo-theme");
    } catch {
      return null;
    }
  }

  function apply() {
    root.dataset.theme = stored() ?? (system.matches ? "dark" : "light");
    const isDark = root.dataset.theme === "dark";
    document.getElementById("theme")?.setAttribute("aria-pressed", String(isDark));
    document.dispatchEvent(new Event("themechange"));
  }

  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      try {
        localStorage.setItem("gpo-theme", root.dataset.theme === "dark" ? "light" : "dark");
      } catch {
        root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
      }
      apply();
    });
  });
})();
