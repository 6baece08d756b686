// Keeps the parts of a page fresh that say so: they are read again when something has happened, and replaced where they
// changed. What somebody has the focus in, or points at to press, stays.
import { get } from "./api.js";
import { follow } from "./stream.js";

const APART_MS = 2000;
const AT_LEAST_MS = 15000; // what no event tells of, such as load, is looked at so often

// After something was done here, its place is shown anew whoever points at it.
export async function freshen(isOwn = false) {
  const page = new DOMParser().parseFromString(await get(location.pathname + location.search, { headers: { accept: "text/html" } }), "text/html");
  for (const part of document.querySelectorAll("[data-fresh]")) {
    const found = page.getElementById(part.id);
    const isBusy = !isOwn && part.matches(":has(:focus-visible, button:hover, summary:hover)") || document.querySelector("dialog[open]");
    if (!found || isBusy || found.innerHTML === part.innerHTML) continue;
    part.querySelectorAll("details[open]").forEach((_, number) => { found.querySelectorAll("details")[number]?.setAttribute("open", ""); });
    part.replaceWith(found);
  }
}

// Where the server is away, the mark says so.
const again = () => freshen().catch(() => {});

if (document.querySelector("[data-fresh]") && document.getElementById("live")) {
  follow(() => true, again, APART_MS);
  setInterval(() => { if (!document.hidden) again(); }, AT_LEAST_MS);
}
