// Follows the log of one run by server-sent events. Text goes in as text, never as markup.

const MOST = 2_000_000; // characters kept on the page
const byId = (id) => document.getElementById(id);
const log = byId("log");
const source = new EventSource(`/v1/runs/${byId("run").dataset.run}/log/follow`);
let kept = 0;

function mark(word, className) {
  const live = byId("live");
  live.className = `live ${className}`;
  live.querySelector("b").textContent = word;
}

// Colour codes of terminals mean nothing here.
const plain = (text) => text.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]/g, "").replaceAll("\r\n", "\n");

function append(text) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.append(plain(text));
  kept += text.length;
  while (kept > MOST && log.childNodes.length > 1) {
    kept -= log.firstChild.length;
    log.firstChild.remove();
  }
  if (atEnd) log.scrollTop = log.scrollHeight;
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
  byId("state").className = `state ${run.state}`;
  byId("state").textContent = run.state.replaceAll("_", " ");
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
  for (const place of document.querySelectorAll("[data-clock]")) {
    const moment = run[place.dataset.clock];
    place.textContent = moment === null ? "–" : moment.replace(/(\.\d{3})\d*/, "$1").replace("T", " ").replace("Z", " UTC");
  }
  const late = run.late_ms;
  document.querySelector("[data-span]").textContent =
    late === null ? "–" : Math.abs(late) < 1000 ? `${late} ms` : `${(late / 1000).toFixed(1)} s`;
}

source.addEventListener("log", (event) => append(JSON.parse(event.data).text));
source.addEventListener("state", (event) => show(JSON.parse(event.data)));
source.addEventListener("end", (event) => {
  source.close();
  show(JSON.parse(event.data));
  byId("quiet").textContent = "No output.";
  mark("ended", "held");
});
source.addEventListener("open", () => mark("live", ""));
source.addEventListener("error", () => mark("reconnecting", "lost"));
