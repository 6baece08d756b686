// Finds jobs, runs, nodes and actions. What there is on the page itself (links of the rail, buttons) is found too.
import { get } from "./api.js";
import { byId, later, make } from "./dom.js";

const MOST = 8; // jobs that are shown
const palette = byId("palette");
const input = palette.querySelector("input");
const list = byId("found");
let chosen = 0;
let items = [];
let asking;
let nodes;
let isStale = false; // what is shown was found for what was typed before
let isEntered = false; // and Enter is meant for what will be found

const root = document.documentElement.dataset;
// What the menu of the clock chooses, by its words.
function looks() {
  const choices = [...document.querySelectorAll("#look [name=theme], #look [name=density], #look [name=zone]:not([value=other])")];
  return choices.filter((choice) => choice.value !== root[choice.name] && !(choice.name === "zone" && choice.checked)).map((choice) => ({
    title: `${choice.name === "zone" ? "Time zone" : choice.name[0].toUpperCase() + choice.name.slice(1)}: ${choice.parentElement.textContent.trim().replace(/^(?!UTC)./, (first) => first.toLowerCase())}`,
    kind: "action", act: () => choice.click(),
  }));
}

// Who may make jobs, and who has a session, is said by the shell.
function general() {
  const out = document.querySelector('form[action="/logout"]');
  return [
    "mayWrite" in palette.dataset && { title: "New job", kind: "action", href: "/jobs/new" },
    out && { title: "Log out", kind: "action", act: () => out.requestSubmit() },
  ].filter(Boolean);
}

// Rail, tabs, and every button that a page names as an action.
function ownItems() {
  const pages = [...document.querySelectorAll(".rail a")].map((link) => ({ title: link.textContent.trim(), kind: "page", href: link.href }));
  const acts = [...document.querySelectorAll("main [data-action]")]
    .filter((button) => !button.disabled && button.checkVisibility())
    .map((button) => ({ title: button.dataset.action, kind: "action", act: () => button.click() }));
  return [...acts, ...pages, ...general(), ...looks()];
}

const matches = (title, text) => text.toLowerCase().split(/\s+/).every((word) => title.toLowerCase().includes(word));

async function findNodes(text, signal) {
  nodes ??= (await get("/v1/nodes", { signal })).items;
  const page = document.querySelector('.rail a[href$="/cluster"]') ? "/cluster" : "/";
  return nodes.filter((node) => matches(node.name, text)).slice(0, 4)
    .map((node) => ({ title: node.name, kind: `node, ${node.state}`, href: `${page}#node-${encodeURIComponent(node.name)}` }));
}

async function findJobs(text, signal) {
  const page = await get(`/v1/jobs?limit=${MOST}&q=${encodeURIComponent(text)}`, { signal });
  return page.items.map((job) => ({ title: job.name, kind: job.paused ? "job, paused" : "job", href: `/jobs/${job.id}` }));
}

// "latest NAME", "run NAME", "edit NAME": what is done with the jobs that are found by the other words.
async function findDeeds(text, signal) {
  const [, verb, words] = text.match(/^(latest|run|edit)\s+(?:run\s+of\s+)?(.*\S)/i) ?? [];
  if (!words) return [];
  const { items } = await get(`/v1/jobs?limit=3&q=${encodeURIComponent(words)}`, { signal });
  if (/edit/i.test(verb)) return "mayWrite" in palette.dataset ? items.map((job) => ({ title: `Edit ${job.name}`, kind: "action", href: `/jobs/${job.id}/edit` })) : [];
  const latest = await Promise.all(items.map((job) => get(`/v1/runs?limit=1&job_id=${job.id}`, { signal })));
  return [
    ...items.flatMap((job, number) => latest[number].items.map((run) => ({ title: `Latest run of ${job.name}`, kind: `run, ${run.state.replaceAll("_", " ")}`, href: `/runs/${run.id}` }))),
    ...("mayRun" in palette.dataset && /run/i.test(verb) ? items.map((job) => ({ title: `Run ${job.name}`, kind: "action", href: `/jobs/${job.id}/run` })) : []),
  ];
}

// A number may be one of a run, and of a job.
async function findNumber(text, signal) {
  if (!/^#?[1-9][0-9]{0,18}$/.test(text)) return [];
  const id = text.replace("#", "");
  const known = await Promise.allSettled([get(`/v1/runs/${id}`, { signal }), get(`/v1/jobs/${id}`, { signal })]);
  return [
    known[0].value && { title: `Run ${id} of ${known[0].value.job_name ?? `job ${known[0].value.job_id}`}`, kind: known[0].value.state.replaceAll("_", " "), href: `/runs/${id}` },
    known[1].value && { title: `Job ${id}: ${known[1].value.name}`, kind: "job", href: `/jobs/${id}` },
  ].filter(Boolean);
}

function show(found) {
  items = found;
  chosen = Math.min(chosen, Math.max(0, items.length - 1));
  list.replaceChildren(...(items.length ? items.map(option) : [make("div", { role: "option", ariaDisabled: "true", className: "empty", textContent: "Nothing found" })]));
  mark();
}

function option(item, number) {
  const made = make("div", { id: `found-${number}`, role: "option" }, make("span", { textContent: item.title }), make("small", { textContent: item.kind }));
  made.addEventListener("click", (event) => go(item, event.ctrlKey || event.metaKey));
  made.addEventListener("pointermove", () => { if (chosen !== number) { chosen = number; mark(); } });
  return made;
}

function mark() {
  [...list.children].forEach((child, number) => child.setAttribute("aria-selected", String(number === chosen)));
  input.setAttribute("aria-activedescendant", items.length ? `found-${chosen}` : "");
  list.children[chosen]?.scrollIntoView({ block: "nearest" });
}

function go(item, isApart = false) {
  palette.close();
  if (item.act) item.act();
  else if (isApart) window.open(item.href, "_blank", "noopener");
  else location.href = item.href;
}

async function look() {
  const text = input.value.trim();
  asking?.abort();
  const own = ownItems().filter((item) => matches(item.title, text));
  const { signal } = (asking = new AbortController());
  const found = text ? await Promise.allSettled([findNumber(text, signal), findDeeds(text, signal), findJobs(text, signal), findNodes(text, signal)]) : [];
  if (signal.aborted) return;
  isStale = false;
  show([...found.flatMap(({ value }) => value ?? []), ...own]);
  if (isEntered && palette.open && items.length) go(items[0]);
  isEntered = false;
}

const lookSoon = later(look, 90);
input.addEventListener("input", () => {
  chosen = 0;
  isStale = true;
  isEntered = false;
  lookSoon();
});
input.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && items.length) {
    event.preventDefault();
    chosen = (chosen + step + items.length) % items.length;
    mark();
  } else if (event.key === "Enter") {
    event.preventDefault();
    if (isStale) isEntered = true;
    else if (items[chosen]) go(items[chosen], event.ctrlKey || event.metaKey);
  }
});
palette.addEventListener("click", ({ target }) => { if (target === palette) palette.close(); });

export function open(text = "", isEnteredAlready = false) {
  if (palette.open) return;
  input.value = text;
  chosen = 0;
  isStale = text !== "";
  isEntered = isStale && isEnteredAlready;
  nodes = undefined;
  palette.showModal();
  input.focus();
  input.setSelectionRange(text.length, text.length);
  look();
}
