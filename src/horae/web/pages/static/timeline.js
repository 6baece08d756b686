// Arrows and signs move and zoom the timeline, as its buttons do.
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.altKey || event.metaKey) return;
  const to = [...document.querySelectorAll("[data-key]")].find((link) => link.dataset.key === event.key);
  if (to) location.href = to.href;
});
