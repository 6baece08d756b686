// Keeps a page fresh: it is read again, and parts that changed take the place of the old ones. What somebody points at,
// holds or has opened stays as it is.
import { get } from "./api.js";
import { reachScrolled } from "./dom.js";

const parts = (where) => [...where.querySelectorAll("main [data-fresh]")];
// The title has the buttons that were just pressed: it always says how things stand.
const isHeld = (part) => part.dataset.fresh !== "title" && part.matches(":hover, :focus-within") || part.querySelector("details[open]");

export async function refresh() {
  const text = await get(location.href, { headers: { accept: "text/html" } });
  const page = new DOMParser().parseFromString(text, "text/html");
  const found = new Map(parts(page).map((part) => [part.dataset.fresh, part]));
  for (const part of parts(document)) {
    const fresh = found.get(part.dataset.fresh);
    if (!fresh) part.remove();
    else if (!isHeld(part) && part.innerHTML !== fresh.innerHTML) part.replaceWith(fresh);
    found.delete(part.dataset.fresh);
  }
  reachScrolled();
  return found.size === 0; // else the page has parts that were not there before
}
