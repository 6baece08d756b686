// Arrows and signs move and zoom the timeline, as its buttons do. What was still being worked out when it came is fetched.
import { refresh } from "./fresh.js";

const SOON_MS = 2000;

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.altKey || event.metaKey) return;
  const to = [...document.querySelectorAll("[data-key]")].find((link) => link.dataset.key === event.key);
  if (to) location.href = to.href;
});

async function complete() {
  if (!document.querySelector("[data-soon]")) return;
  await refresh().catch(() => {}); // where the server is away, the mark says so
  setTimeout(complete, SOON_MS);
}

setTimeout(complete, SOON_MS);
