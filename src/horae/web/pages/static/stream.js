// What happens, as it happens: from the worker that all tabs share, or, where there is none, from a stream of this tab.
import { byId } from "./dom.js";

const UNNAMED_MS = 5000; // between two looks, where so much happens that nobody says whether it was of interest
const SAID = { live: ["live", ""], lost: ["no answer", "lost"], held: ["paused", "held"] };
const followers = [];
const runs = new Map(); // that are watched, each with what is done when it is told of
let watch; // says which; once the stream is there
let isBegun = false;

function show(state) {
  const place = byId("live");
  if (!place || !SAID[state] || "ended" in place.dataset) return;
  [place.textContent, place.className] = [SAID[state][0], `pulse end ${SAID[state][1]}`];
}

function hear({ state, beat, standing }) {
  if (state) show(state);
  if (standing) runs.get(standing.run.id)?.(standing);
  for (const one of followers) {
    if (state === "live" || (beat && one.wanted(beat))) one.wake(); // what happened since the page was made was not heard
    else if (beat?.many) one.wake(UNNAMED_MS);
  }
}

async function begin() {
  if (isBegun) return;
  isBegun = true;
  if (typeof SharedWorker === "undefined") {
    watch = (await import("./events.js")).listen(hear);
    watchRuns();
    return;
  }
  const worker = new SharedWorker(new URL("./events.js", import.meta.url), { type: "module", name: "horae-events" });
  worker.port.onmessage = ({ data }) => hear(data);
  watch = (ids) => worker.port.postMessage({ runs: ids });
  watchRuns();
  addEventListener("pagehide", () => worker.port.postMessage({}));
  addEventListener("pageshow", ({ persisted }) => { if (persisted) location.reload(); });
}

function watchRuns() {
  if (runs.size && watch) watch([...runs.keys()]);
}

// Acts when it is told how a run stands: {run, attempt, log_size}. That of a tab that is looked at comes before others.
export function followRun(id, act) {
  runs.set(id, act);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) watchRuns(); });
  if (isBegun) watchRuns();
  else begin();
}

// Acts when a beat (its kinds, its jobs) is wanted: at most once in `every` ms, and not while nobody looks.
export function follow(wanted, act, every) {
  let last = 0;
  let due = Infinity;
  let timer;
  let isOwed = false;
  const go = () => {
    due = Infinity;
    isOwed = document.hidden;
    if (isOwed) return;
    last = Date.now();
    act();
  };
  const wake = (apart = 0) => {
    const at = last + Math.max(every, apart);
    if (at >= due) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(go, Math.max(0, at - Date.now()));
  };
  followers.push({ wanted, wake });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && isOwed) wake(); });
  begin();
}
