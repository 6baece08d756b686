// Keeps the overview fresh: reads /v1/overview every two seconds while the page is visible.
// Text goes in as text (textContent), never as markup.

const EVERY_MS = 2000;
const byId = (id) => document.getElementById(id);

function make(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
}

function span(ms) {
  if (ms === null) return "–";
  if (Math.abs(ms) < 1000) return `${Math.round(ms)} ms`;
  if (Math.abs(ms) < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function away(moment, now) {
  if (moment === null) return "–";
  const seconds = (Date.parse(moment) - now) / 1000;
  const far = Math.abs(seconds);
  if (far < 1) return "now";
  const [unit, word] = UNITS.find(([least]) => far >= least);
  const text = `${Math.floor(far / unit)} ${word}`;
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

function took(run, now) {
  if (run.started_at === null) return "–";
  const end = run.finished_at === null ? now : Date.parse(run.finished_at);
  return span(Math.max(0, end - Date.parse(run.started_at)));
}

const words = (text) => text.replaceAll("_", " ");
const nameOf = (seen, id) => seen.names[id] ?? `job ${id}`;
const dim = (text) => make("span", { className: "dim", textContent: text });

function runRow(run, seen, now) {
  const state = make("span", { className: `state ${run.state}`, textContent: words(run.state) });
  return make(
    "tr", {},
    make("td", {}, make("a", { href: `/runs/${run.id}`, textContent: nameOf(seen, run.job_id) }), " ", dim(`#${run.id}`)),
    make("td", {}, state, ...(run.reason ? [" ", make("span", { className: "why", textContent: words(run.reason) })] : [])),
    make("td", { title: run.due_at, textContent: away(run.due_at, now) }),
    make("td", { className: "num", textContent: span(run.late_ms) }),
    make("td", { className: "num", textContent: took(run, now) }),
  );
}

function dueItem(trigger, seen, now) {
  const what = make("span", {},
    make("b", { textContent: nameOf(seen, trigger.job_id) }), make("small", { textContent: trigger.description }));
  return make("li", {}, what, make("time", { title: trigger.next_at, textContent: away(trigger.next_at, now) }));
}

function nodeItem(node) {
  const doing = [node.roles.join(", "), node.kinds.join(", "), node.segments ? `${node.segments} segments` : "",
    node.via ? `via ${node.via}` : "", node.wanted === "live" ? "" : node.wanted, node.ailment ? `ill: ${node.ailment}` : ""].filter(Boolean).join(" · ");
  const what = make("span", {},
    make("b", {}, make("i", { className: `spot ${node.state}` }), node.name), make("small", { textContent: doing }));
  return make("li", {}, what, make("span", { className: "load", title: "busy of slots", textContent: `${node.busy} / ${node.slots}` }));
}

function fill(id, items, empty) {
  const place = byId(id);
  const isTable = place.tagName === "TBODY";
  const nothing = isTable
    ? make("tr", {}, make("td", { className: "none", colSpan: 5, textContent: empty }))
    : make("li", { className: "none", textContent: empty });
  place.replaceChildren(...(items.length ? items : [nothing]));
}

function show(seen) {
  const now = Date.parse(seen.at);
  for (const tile of document.querySelectorAll("[data-count]")) tile.textContent = seen.census[tile.dataset.count];
  for (const tile of document.querySelectorAll("[data-live]")) tile.textContent = seen.census.live[tile.dataset.live] ?? 0;
  byId("waiting").textContent = away(seen.census.oldest_queued_at, now);
  fill("live-runs", seen.live.map((run) => runRow(run, seen, now)), "Nothing is waiting or running.");
  fill("recent", seen.recent.map((run) => runRow(run, seen, now)), "No run has ended yet. Submit a job: see API.");
  fill("due", seen.due.map((trigger) => dueItem(trigger, seen, now)), "Nothing is due.");
  fill("nodes", seen.nodes.map(nodeItem), "No node has joined.");
}

function mark(word, className) {
  const live = byId("live");
  live.className = `live ${className}`;
  live.querySelector("b").textContent = word;
}

async function tick() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/v1/overview", { signal: AbortSignal.timeout(10000) });
      if (answer.status === 401) return location.reload();  // the session has ended: the login page comes
      if (!answer.ok) throw new Error(answer.statusText);
      show(await answer.json());
      mark("live", "");
    } catch {
      mark("no answer", "lost");
    }
  }
  timer = setTimeout(tick, EVERY_MS);
}

let timer = setTimeout(tick, EVERY_MS);
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (document.hidden) mark("paused", "held");
  else tick();
});
