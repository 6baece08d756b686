// Keeps a page fresh: it is read again, and parts that changed take the place of the old ones. What somebody points at or
// has the focus in stays as it is, and what was opened stays open.
import { get } from "./api.js";
import { reachScrolled } from "./dom.js";

const parts = (where) => [...where.querySelectorAll("main [data-fresh]")];
const nameOf = (part) => part.dataset.fresh || part.id;
// The title has the buttons that were just pressed: it always says how things stand.
const isHeld = (part) => part.dataset.fresh !== "title" && part.matches(":has(:focus-visible, :is(a, button, input, summary, tr, li):hover)");

function put(part, fresh) {
  part.querySelectorAll("details[open]").forEach((_, number) => { fresh.querySelectorAll("details")[number]?.setAttribute("open", ""); });
  part.replaceWith(fresh);
}

// The part that stands right before this one, by name.
const nameBefore = ({ previousElementSibling: before }) => (before?.matches("[data-fresh]") ? nameOf(before) : undefined);

// After something was done here, its place is shown anew whoever points at it.
export async function refresh(isOwn = false) {
  const text = await get(location.pathname + location.search, { headers: { accept: "text/html" } });
  const page = new DOMParser().parseFromString(text, "text/html");
  const found = new Map(parts(page).map((part) => [nameOf(part), { fresh: part, after: nameBefore(part) }]));
  const there = new Map();
  for (const part of parts(document)) {
    const { fresh } = found.get(nameOf(part)) ?? {};
    const isBusy = document.querySelector("dialog[open]") || (!isOwn && isHeld(part));
    if (!fresh) part.remove();
    else if (!isBusy && !part.isEqualNode(fresh)) put(part, fresh);
    if (fresh) there.set(nameOf(part), part.isConnected ? part : fresh);
    found.delete(nameOf(part));
  }
  for (const [name, { fresh, after }] of found) {
    if (!there.has(after)) continue;
    there.get(after).after(fresh);
    there.set(name, fresh);
    found.delete(name);
  }
  reachScrolled();
  return found.size === 0; // else the page has parts that were not there before, and nobody knows where they belong
}
