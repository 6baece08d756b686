// Follows one run: its state, how far it is, and that its log has grown (log.js reads it).

import { get } from "./api.js";
import { badge, byId, make, when } from "./dom.js";
import { followRun } from "./stream.js";
import { because, clock } from "./words.js";

// Parts that only a server draws well are read again when the state has changed.
let shown = `${byId("run").dataset.state} ${byId("run").dataset.attempt}`;
async function redraw() {
  const page = new DOMParser().parseFromString(await get(location.pathname + location.search, { headers: { accept: "text/html" } }), "text/html");
  for (const name of ["acts", "waterfall", "attempts", "why", "came"]) {
    const found = page.getElementById(name);
    if (found && byId(name)) byId(name).replaceWith(found);
    else if (found && name === "attempts") byId("waterfall").after(found); // there was one until now
  }
}

// How far work is, in the words that the page came with.
function far(progress) {
  const of = (name, what = ` ${name}`) => {
    const { done, total } = progress[name] ?? {};
    return done === undefined ? "" : `${done.toLocaleString("en")}${total === undefined ? "" : ` of ${total.toLocaleString("en")}`}${what}`;
  };
  const rows = progress.rows === undefined ? "" : `${progress.rows.toLocaleString("en")} rows`;
  const share = progress.share === undefined ? "" : `${Math.round(progress.share * 100)}%`;
  return [progress.step, of("tables"), of("stages"), of("items", ""), share, rows].filter(Boolean).join(", ");
}

// How much of it is done, by the finest count there is; undefined where nobody knows.
function share(progress) {
  for (const name of ["items", "stages", "tables"]) {
    const { done, total } = progress[name] ?? {};
    if (done !== undefined && total) return Math.min(1, done / total);
  }
  return progress.share;
}

function show(run) {
  const now = `${run.state} ${run.attempt}`;
  if (now !== shown) {
    shown = now;
    redraw().catch(() => {}); // the mark says that the server is away
  }
  byId("state").replaceChildren(...badge(run.state));
  byId("message").textContent = run.message;
  byId("message").hidden = !run.message;
  const done = share(run.progress ?? {});
  byId("progress").hidden = !run.progress;
  byId("far").textContent = far(run.progress ?? {});
  byId("bar").hidden = done === undefined;
  byId("bar").value = done ?? 0;
  for (const place of document.querySelectorAll("[data-field]")) {
    const value = run[place.dataset.field];
    place.textContent = value === null || value === "" ? "–" : value;
  }
  document.querySelector("[data-because]").textContent = because(run.reason) || "–";
  for (const place of document.querySelectorAll("[data-clock]")) {
    const moment = run[place.dataset.clock];
    place.replaceChildren(...(moment ? [when(moment), " ", make("small", { textContent: clock(moment) })] : ["–"]));
  }
  const late = run.late_ms;
  document.querySelector("[data-span]").textContent =
    late === null ? "–" : Math.abs(late) < 1000 ? `${late} ms` : `${(late / 1000).toFixed(1)} s`;
}

let grownTo; // attempt and size of the log that log.js was told of
function grow(attempt, size) {
  if (grownTo !== `${attempt}:${size}`) tell(attempt);
  grownTo = `${attempt}:${size}`;
}

const tell = (attempt) => document.dispatchEvent(new CustomEvent("horae-log", { detail: { attempt } }));

function end({ attempt }) {
  const live = byId("live");
  [live.className, live.textContent, live.dataset.ended] = ["pulse end held", "ended", ""];
  byId("quiet").textContent = "No output.";
  tell(attempt);
}

if (!("ended" in byId("live").dataset)) {
  followRun(Number(byId("run").dataset.run), ({ run, attempt, log_size: size }) => {
    show(run);
    grow(attempt, size);
    if (run.finished_at) end(run);
  });
}
