// The list of runs: rows change in place and never move; what is new waits to be asked for. Many are cancelled or run
// again together, after a dry run has said how many.
import { get, post } from "./api.js";
import { badge, byId } from "./dom.js";
import { narrow } from "./filters.js";
import { follow } from "./stream.js";
import { sure } from "./sure.js";
import { toast } from "./toasts.js";
import { count, took } from "./words.js";

const found = byId("found");
const bulk = byId("bulk");
const VERBS = {
  rerun: ["Run again", "run again", "Each with the data and the priority that it had."],
  cancel: ["Cancel", "cancelled", "What waits ends at once; what runs is killed."],
};
const LIVE = ["queued", "blocked", "running"];
const MOST_OTHERS = 20; // rows that are asked for one by one
let whole = false; // all of the filter, not only what is shown

const boxes = () => [...document.querySelectorAll(".pick")];
const runs = (number) => `${count(number)} ${number === 1 ? "run" : "runs"}`;

function show(run) {
  const row = document.querySelector(`[data-run="${run.id}"]`);
  if (!row) return false;
  if (row.dataset.state !== run.state) row.querySelector(".of-state").replaceChildren(...badge(run.state, run.reason));
  row.dataset.state = run.state;
  row.querySelector(".of-took").textContent = took(run);
  return true;
}

// Those that the filter finds no longer have changed too.
async function lookAtOthers(items) {
  const known = new Set(items.map((run) => String(run.id)));
  const left = [...document.querySelectorAll("[data-run]")].filter((row) => LIVE.includes(row.dataset.state) && !known.has(row.dataset.run));
  for (const row of left.slice(0, MOST_OTHERS)) show(await get(`/v1/runs/${row.dataset.run}`));
}

async function look() {
  const { items } = await get(`/v1/runs?${found.dataset.api}`);
  await lookAtOthers(items);
  const fresh = items.filter((run) => !show(run)).length;
  byId("news").hidden = fresh === 0 || !found.dataset.isFirst;
  byId("news").textContent = `${count(fresh)}${fresh === items.length ? " or more" : ""} new`;
}

byId("news").addEventListener("click", () => location.reload());
byId("back")?.addEventListener("click", () => history.back());
narrow(byId("filters"));

// ── many ──

function showPicked() {
  const number = boxes().filter((box) => box.checked).length;
  bulk.hidden = number === 0 && !whole;
  byId("picked").textContent = whole ? "All of this filter" : `${runs(number)} chosen`;
  if (byId("everything")) byId("everything").hidden = whole;
}

async function act(verb, isWhole = whole) {
  const [word, done, text] = VERBS[verb];
  const meant = isWhole ? { where: JSON.parse(found.dataset.where) } : { runs: boxes().filter((box) => box.checked).map((box) => Number(box.value)) };
  try {
    const dry = (await post(`/v1/runs/${verb}`, { ...meant, dry_run: true })).items;
    const good = dry.filter((one) => !one.error).map((one) => one.run_id);
    const bad = dry.find((one) => one.error);
    if (!good.length) return toast({ detail: bad ? `None can be ${done}: ${bad.error.detail}` : `No run of this filter can be ${done}`, hint: bad?.error.hint });
    const left = dry.length - good.length;
    if (!(await sure(`${word} ${runs(good.length)}?`, left ? `${text} ${runs(left)} cannot: ${bad.error.detail}` : text, `${word} ${runs(good.length)}`, verb === "cancel"))) return;
    const headers = verb === "rerun" ? { "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()) } : {};
    const answers = (await post(`/v1/runs/${verb}`, { runs: good }, { headers })).items;
    const wrong = answers.filter((one) => one.error);
    if (answers.length > wrong.length) toast(`${runs(answers.length - wrong.length)} ${verb === "cancel" ? "cancelled" : "asked for again"}`);
    if (wrong.length) toast({ ...wrong[0].error, detail: `${runs(wrong.length)} not: ${wrong[0].error.detail}` });
    whole = false;
    boxes().forEach((box) => { box.checked = false; });
    showPicked();
    await look();
  } catch (problem) {
    toast(problem);
  }
}

found.addEventListener("click", ({ target }) => { if (target.dataset.whole) act(target.dataset.whole, true); });
if (bulk) {
  document.addEventListener("change", ({ target }) => {
    if (target.id === "all") boxes().forEach((box) => { box.checked = target.checked; });
    if (target.id === "all" || target.classList.contains("pick")) {
      whole = false;
      showPicked();
    }
  });
  bulk.addEventListener("click", ({ target }) => {
    if (target.dataset.bulk) act(target.dataset.bulk);
    if (target.id === "everything") {
      whole = true;
      showPicked();
    }
  });
}
follow(({ kinds }) => kinds.some((kind) => kind.startsWith("run.")), () => look().catch(() => {}), 2000); // the mark says that the server is away
