// Rows of the list of jobs follow what happens, where they are: a row changes, and never moves. Only rows of jobs that were
// named in a beat are asked for. What is new, or stands elsewhere by now, waits until somebody asks for it.
import { get } from "./api.js";
import { byId, make } from "./dom.js";
import { follow } from "./stream.js";
import { count } from "./words.js";

const EVERY_MS = 2000;
const OTHERS_MS = 5000; // between two looks at the whole list
const ORDERED = ["state", "sort"]; // of an address: then also runs decide what is in the list, and where

const rows = (where = document) => new Map([...where.querySelectorAll("#jobs [data-job]")].map((row) => [Number(row.dataset.job), row]));
let touched = new Set();
let isAll = false; // there was more than was named

async function read(more) {
  const asked = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(more)) asked.set(name, value);
  return new DOMParser().parseFromString(await get(`/jobs?${asked}`, { headers: { accept: "text/html" } }), "text/html");
}

// The box stays as it is, and so does what has the focus.
function put(row, fresh) {
  const { latest, state } = row.dataset;
  const first = row.querySelector("[name=chosen]") ? 1 : 0;
  for (let at = first; at < row.cells.length; at += 1) {
    const cell = row.cells[at];
    if (!cell.matches(":has(:focus-visible)")) cell.replaceChildren(...fresh.cells[at].childNodes);
  }
  for (const name of ["latest", "state"]) if (fresh.dataset[name]) row.dataset[name] = fresh.dataset[name];
  if (latest !== row.dataset.latest || state !== row.dataset.state) row.classList.add("changed");
}

function putAway(row) {
  if (row.classList.contains("away")) return;
  row.classList.add("away");
  row.querySelector(".latest").replaceChildren(make("span", { className: "state cancelled", textContent: "deleted" }));
  const box = row.querySelector("[name=chosen]");
  if (box) [box.checked, box.disabled] = [false, true];
}

async function look() {
  const known = rows();
  const named = [...touched].filter((id) => known.has(id));
  const wanted = isAll || !touched.size ? [...known.keys()] : named;
  touched = new Set();
  isAll = false;
  if (!wanted.length) return;
  const fresh = rows(await read({ only: wanted.join() }));
  for (const id of wanted) {
    if (!known.get(id).isConnected) continue; // another list is shown by now
    if (fresh.has(id)) put(known.get(id), fresh.get(id));
    else putAway(known.get(id));
  }
}

// What the list would be by now.
async function lookAtOthers() {
  const address = location.search;
  const page = await read({});
  if (location.search !== address || !byId("jobs")) return;
  const shown = [...rows().keys()];
  const found = [...rows(page).keys()];
  const fresh = found.filter((id) => !shown.includes(id)).length;
  const isMoved = found.join() !== shown.filter((id) => found.includes(id)).join();
  byId("news").hidden = !fresh && !isMoved;
  byId("news").textContent = fresh ? `${count(fresh)} new` : "In another order by now";
}

const isOrdered = () => ORDERED.some((name) => new URLSearchParams(location.search).has(name));

function wantsRows({ jobs, many }) {
  const known = rows();
  const named = jobs.filter((id) => known.has(id));
  for (const id of named) touched.add(id);
  isAll ||= many;
  return named.length > 0;
}

const wantsOthers = ({ kinds }) => kinds.some((kind) => /^(job|trigger)\./.test(kind) || (kind.startsWith("run.") && isOrdered()));

// The mark says it where the server is away.
export function keepRows(showAnew) {
  byId("news").addEventListener("click", () => showAnew());
  document.addEventListener("animationend", ({ target }) => target.classList.remove("changed"));
  follow(wantsRows, () => look().catch(() => {}), EVERY_MS);
  follow(wantsOthers, () => lookAtOthers().catch(() => {}), OTHERS_MS);
}
