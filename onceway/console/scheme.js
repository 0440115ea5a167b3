// The page's own button: light or dark.

const button = document.getElementById("scheme");

function scheme(wanted) {
  document.documentElement.dataset.scheme = wanted;
  button.textContent = wanted === "dark" ? "Light" : "Dark";
}

const system = matchMedia("(prefers-color-scheme: dark)");
scheme(system.matches ? "dark" : "light");
system.addEventListener("change", () => scheme(system.matches ? "dark" : "light"));
button.addEventListener("click", () => scheme(document.documentElement.dataset.scheme === "dark" ? "light" : "dark"));
