// What happens, as it happens: from the worker that all tabs share, or, where there is none, from a stream of this tab.
import { byId } from "./dom.js";

const SAID = { live: ["live", ""], lost: ["no answer", "lost"], held: ["paused", "held"] };
const followers = [];
let isBegun = false;

function show(state) {
  const place = byId("live");
  if (!place || !SAID[state]) return;
  [place.textContent, place.className] = [SAID[state][0], `pulse end ${SAID[state][1]}`];
}

function hear({ state, events, isMany }) {
  if (state) show(state);
  if (state === "live") for (const one of followers) one.wake(); // what happened since the page was made was not heard
  if (events) for (const one of followers) if (isMany || events.some(one.wanted)) one.wake();
}

async function begin() {
  if (isBegun) return;
  isBegun = true;
  if (typeof SharedWorker === "undefined") {
    (await import("./events.js")).listen(hear);
    return;
  }
  const worker = new SharedWorker(new URL("./events.js", import.meta.url), { type: "module", name: "horae-events" });
  worker.port.onmessage = ({ data }) => hear(data);
  addEventListener("pagehide", () => worker.port.postMessage("goodbye"));
  addEventListener("pageshow", ({ persisted }) => { if (persisted) location.reload(); });
}

// Acts when an event is wanted: at most once in `every` ms, and not while nobody looks.
export function follow(wanted, act, every) {
  let last = 0;
  let timer;
  let isOwed = false;
  const go = () => {
    timer = undefined;
    isOwed = document.hidden;
    if (isOwed) return;
    last = Date.now();
    act();
  };
  const wake = () => { timer ??= setTimeout(go, Math.max(0, last + every - Date.now())); };
  followers.push({ wanted, wake });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && isOwed) wake(); });
  begin();
}
