// The map of segments as a rebalance goes on: cells that moved are marked for a while, and counted.
import { byId } from "./dom.js";

const MARKED_MS = 10_000;
const COUNTED_MS = 60_000;
const owners = new Map(); // of segments, as they were shown last
const moves = []; // {segment, at}, the oldest first
let shown; // the map that was looked at

function look() {
  const now = Date.now();
  const map = byId("segments");
  for (const cell of map.querySelectorAll("[data-segment]")) {
    const { segment, owner } = cell.dataset;
    if (map !== shown && owners.has(segment) && owners.get(segment) !== owner) moves.push({ segment, at: now });
    owners.set(segment, owner);
  }
  shown = map;
  while (moves.length && now - moves[0].at > COUNTED_MS) moves.shift();
  const marked = new Set(moves.filter(({ at }) => now - at < MARKED_MS).map(({ segment }) => segment));
  for (const cell of map.querySelectorAll("[data-segment]")) cell.classList.toggle("moved", marked.has(cell.dataset.segment));
  const count = new Set(moves.map(({ segment }) => segment)).size;
  const said = count ? `${count} ${count === 1 ? "segment" : "segments"} moved in the last minute` : "";
  if (byId("moved").textContent !== said) byId("moved").textContent = said;
}

look();
new MutationObserver(() => { if (byId("segments") !== shown) look(); }).observe(byId("main"), { childList: true, subtree: true });
setInterval(look, 1000);
