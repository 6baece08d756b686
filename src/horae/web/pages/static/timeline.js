// Arrows and signs move and zoom the timeline, as its buttons do. What was still being worked out when it came is fetched.
// A row of bars is one link: whoever points at one of its bars, or steps to it with the arrow keys, is led to that run.
import { byId } from "./dom.js";
import { refresh } from "./fresh.js";
import { clock, plain } from "./words.js";

const SOON_MS = 2000;
const WIDTH = 1000; // of a row, in the units of its bars
const NEAR_PX = 5; // so near to a bar is meant for it
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

function spotsOf(row) {
  const spots = row.dataset.spots ? row.dataset.spots.split(";") : [];
  return spots.map((text) => {
    const [x, width, state, run, many, start] = text.split(" ");
    return { x: Number(x), end: Number(x) + Number(width), state, run: Number(run), many: Number(many), start: Number(start) };
  });
}

// The bar under a place of the screen, or the nearest that is near enough.
function spotAt(row, left) {
  const box = row.getBoundingClientRect();
  const unit = WIDTH / box.width;
  const at = (left - box.left) * unit;
  const far = ({ x, end }) => Math.max(x - at, at - end, 0);
  const [nearest] = spotsOf(row).sort((one, other) => far(one) - far(other));
  return nearest && far(nearest) <= NEAR_PX * unit ? nearest : undefined;
}

const said = ({ many, state, start }) => `${many > 1 ? `${many} runs, ` : ""}${plain(state)}, ${clock(start * 1000)}`;

function lead(row, spot) {
  row.dataset.whole ??= row.getAttribute("href");
  row.querySelector(".here")?.remove();
  if (!spot) {
    row.href = row.dataset.whole;
    row.removeAttribute("title");
    delete row.dataset.at;
    return;
  }
  const { job } = row.dataset;
  row.href = !spot.run ? `/jobs/${job}` : spot.many > 1 ? `/runs?job=${job}` : `/runs/${spot.run}`;
  row.title = said(spot);
  row.dataset.at = spot.x;
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ class: "here", x: spot.x, width: spot.end - spot.x, y: 2, height: 16 })) mark.setAttribute(name, value);
  row.querySelector("svg").append(mark);
}

// From the bar that one is at to the one before or after it; at first to the one that is nearest to the middle there.
function step(row, by) {
  const spots = spotsOf(row);
  const here = spots.findIndex(({ x }) => x === Number(row.dataset.at));
  const before = spots.findLast(({ x }) => x <= WIDTH / 2) ?? spots[0];
  const after = spots.find(({ x }) => x >= WIDTH / 2) ?? spots.at(-1);
  const to = here >= 0 ? spots[here + by] : by < 0 ? before : after;
  if (!to) return;
  lead(row, to);
  byId("spot").textContent = said(to);
}

const rowOf = (event) => event.target.closest?.(".spots");

for (const kind of ["pointermove", "pointerdown"]) {
  document.addEventListener(kind, (event) => {
    const row = rowOf(event);
    if (row) lead(row, spotAt(row, event.clientX));
  });
}
for (const kind of ["pointerout", "focusout"]) {
  document.addEventListener(kind, (event) => {
    const row = rowOf(event);
    if (row && !row.contains(event.relatedTarget)) lead(row);
  });
}

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.altKey || event.metaKey) return;
  const row = rowOf(event);
  if (row && STEPS[event.key]) {
    event.preventDefault();
    step(row, STEPS[event.key]);
    return;
  }
  const to = [...document.querySelectorAll("[data-key]")].find((link) => link.dataset.key === event.key);
  if (to) location.href = to.href;
});

async function complete() {
  if (!document.querySelector("[data-soon]")) return;
  await refresh().catch(() => {}); // where the server is away, the mark says so
  setTimeout(complete, SOON_MS);
}

setTimeout(complete, SOON_MS);
