// The list of jobs: found as one types, chosen by the row, changed together.
import { get, post } from "./api.js";
import { byId, later, reachScrolled } from "./dom.js";
import { keepRows } from "./rows.js";
import { toast } from "./toasts.js";
import { count } from "./words.js";

const PAGE = 1000;
const VERBS = {
  run: ["Run", "Each runs once, now, by its own overlap rule.", "asked to run"],
  pause: ["Pause", "Their triggers do not fire until they are resumed. What runs goes on.", "paused"],
  resume: ["Resume", "Their triggers fire again from their next moment on.", "resumed"],
  rerun: ["Run again", "The latest run of each, with the data and the priority that it had.", "asked to run again"],
  tag: ["Tag", "The tag is added to those that each has.", "tagged"],
};
const filters = byId("filters");
const bulk = byId("bulk");
let everything; // ids beyond this page, once they were chosen
let asking;

const boxes = () => [...document.querySelectorAll("[name=chosen]")];
const chosen = () => everything ?? boxes().filter((box) => box.checked).map((box) => Number(box.value));
const jobs = (number) => `${count(number)} ${number === 1 ? "job" : "jobs"}`;

// ── found as one types ──

async function look(push) {
  const asked = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value));
  const address = asked.size ? `/jobs?${asked}` : "/jobs";
  asking?.abort();
  const { signal } = (asking = new AbortController());
  byId("jobs").classList.add("busy");
  try {
    const found = new DOMParser().parseFromString(await get(address, { signal, headers: { accept: "text/html" } }), "text/html");
    byId("jobs").replaceWith(found.getElementById("jobs"));
    history[push ? "pushState" : "replaceState"](null, "", address);
    everything = undefined;
    byId("news").hidden = true;
    reachScrolled();
    begin();
  } catch (problem) {
    if (problem.name === "AbortError") return;
    byId("jobs").classList.remove("busy");
    toast(problem);
  }
}

const lookSoon = later(() => look(false), 120);
filters.addEventListener("input", ({ target }) => { if (target.tagName === "INPUT") lookSoon(); });
filters.addEventListener("change", ({ target }) => { if (target.tagName === "SELECT") look(true); });
filters.addEventListener("submit", (event) => { event.preventDefault(); look(true); });
addEventListener("popstate", () => location.reload());
for (const button of document.querySelectorAll("[data-without-script]")) button.hidden = true;

// ── chosen, and changed together ──

function begin() {
  if (!bulk) return;
  for (const box of [...boxes(), byId("all")]) if (box) box.hidden = false;
  showChosen();
}

function showChosen() {
  const number = chosen().length;
  const total = Number(byId("jobs").dataset.total);
  const isWhole = number > 0 && boxes().every((box) => box.checked);
  bulk.hidden = number === 0;
  byId("count").textContent = `${jobs(number)} chosen`;
  bulk.querySelector("[data-verb=rerun]")?.toggleAttribute("hidden", everything !== undefined);
  byId("everything").hidden = everything !== undefined || !isWhole || total <= number;
  byId("everything").textContent = `Choose all ${count(total)}${"cut" in byId("jobs").dataset ? "+" : ""}`;
  if (byId("all")) byId("all").checked = isWhole;
}

const where = () => JSON.parse(byId("jobs").dataset.where);

// All that the filters find, as the API knows them: a dry run names them, and refuses more than can be changed at once.
async function readEverything() {
  const { items } = await post("/v1/jobs/pause", { where: where(), dry_run: true });
  return items.map((one) => one.job_id);
}

function ask(verb, number) {
  const [word, what] = VERBS[verb];
  byId("sure-title").textContent = `${word} ${jobs(number)}?`;
  byId("sure-what").textContent = what;
  byId("sure-yes").textContent = `${word} ${jobs(number)}`;
  byId("sure-field").hidden = verb !== "tag";
  byId("sure-tag").required = verb === "tag";
  byId("sure").returnValue = "";
  byId("sure").showModal();
  return new Promise((resolve) => byId("sure").addEventListener("close", () => resolve(byId("sure").returnValue === "yes"), { once: true }));
}

async function runAll(ids) {
  const wrong = [];
  for (let start = 0; start < ids.length; start += PAGE) {
    const answers = await post("/v1/runs", { runs: ids.slice(start, start + PAGE).map((job) => ({ job })) });
    wrong.push(...answers.runs.filter((one) => one.code));
  }
  return wrong;
}

// Of jobs that are on this page: the list knows their latest runs.
async function rerunAll(ids) {
  const latest = ids.map((id) => document.querySelector(`[data-job="${id}"]`)?.dataset.latest);
  const known = latest.filter(Boolean).map(Number);
  const never = latest.slice(known.length).map(() => ({ detail: "it never ran" }));
  if (!known.length) return never;
  const headers = { "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()) };
  const { items } = await post("/v1/runs/rerun", { runs: known }, { headers });
  return [...items.filter((one) => one.error).map((one) => one.error), ...never];
}

async function changeAll(verb, ids) {
  const more = verb === "tag" ? { add: [byId("sure-tag").value.trim()] } : {};
  const wrong = [];
  for (let start = 0; start < ids.length; start += PAGE) {
    const { items } = await post(`/v1/jobs/${verb}`, { jobs: ids.slice(start, start + PAGE), ...more });
    wrong.push(...items.filter((one) => one.error).map((one) => one.error));
  }
  return wrong;
}

async function act(verb, ids = chosen()) {
  if (!ids.length) return toast("There is none");
  if (!(await ask(verb, ids.length))) return;
  const buttons = bulk.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const wrong = await ({ run: runAll, rerun: rerunAll }[verb]?.(ids) ?? changeAll(verb, ids));
    if (ids.length > wrong.length) toast(`${jobs(ids.length - wrong.length)} ${VERBS[verb][2]}`);
    if (wrong.length) toast({ ...wrong[0], detail: `${jobs(wrong.length)} not: ${wrong[0].detail}` });
  } catch (problem) {
    toast(problem);
  }
  buttons.forEach((button) => { button.disabled = false; });
  look(false);
}

document.addEventListener("change", ({ target }) => {
  if (target.id === "all") boxes().forEach((box) => { box.checked = target.checked; });
  if (target.id === "all" || target.name === "chosen") {
    everything = undefined;
    showChosen();
  }
});
document.addEventListener("click", async ({ target }) => {
  if (!target.dataset?.whole) return;
  try {
    act(target.dataset.whole, await readEverything());
  } catch (problem) {
    toast(problem);
  }
});
bulk?.addEventListener("click", async ({ target }) => {
  if (target.dataset.verb) act(target.dataset.verb);
  if (target.id === "nothing") {
    everything = undefined;
    boxes().forEach((box) => { box.checked = false; });
    showChosen();
  }
  if (target.id === "everything") {
    try {
      everything = await readEverything();
      showChosen();
    } catch (problem) {
      toast(problem);
    }
  }
});

begin();
keepRows(() => look(false));
