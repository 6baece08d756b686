// One stream of events for all tabs of a browser: a shared worker holds it, gathers what comes, and tells every tab twice a
// second. A tab is told of a few events, or that there were many; so the work of a page does not grow with their number.

const GATHER_MS = 500;
const MOST = 200; // events of one message
const AGAIN_MS = 5000;
const KINDS = [
  ...["submitted", "changed", "paused", "resumed", "deleted"].map((word) => `job.${word}`),
  ...["added", "changed", "enabled", "disabled", "removed"].map((word) => `trigger.${word}`),
  ...["queued", "blocked", "started", "cancelling", "retrying", "finished"].map((word) => `run.${word}`),
  ...["joined", "draining", "gone", "leading", "wanted"].map((word) => `node.${word}`),
  ...["created", "changed", "paused", "resumed", "deleted"].map((word) => `queue.${word}`),
  "segment.assigned", "alert.opened", "alert.closed",
];

export function listen(tell) {
  let gathered = [];
  let isMany = false;
  let source;

  function hear({ data, type }) {
    if (gathered.length >= MOST) isMany = true;
    else gathered.push({ type: type.replace("horae.", ""), ...JSON.parse(data).data });
  }

  function open() {
    source = new EventSource("/v1/events/stream");
    source.onopen = () => tell({ state: "live" });
    source.onerror = () => {
      tell({ state: "lost" });
      if (source.readyState === EventSource.CLOSED) setTimeout(open, AGAIN_MS);
    };
    for (const kind of KINDS) source.addEventListener(`horae.${kind}`, hear);
  }

  open();
  setInterval(() => {
    if (!gathered.length) return;
    tell({ events: gathered, isMany });
    gathered = [];
    isMany = false;
  }, GATHER_MS);
}

if (typeof SharedWorkerGlobalScope !== "undefined") {
  const tabs = new Set();
  let state = "";
  listen((message) => {
    state = message.state ?? state;
    for (const tab of tabs) tab.postMessage(message);
  });
  self.onconnect = ({ ports: [tab] }) => {
    tabs.add(tab);
    tab.onmessage = () => tabs.delete(tab); // it says goodbye
    if (state) tab.postMessage({ state });
  };
}
