// One stream for all tabs of a browser: a shared worker holds it and passes on what comes. The server says at most once a
// second what kinds of things happened, and to which jobs; so the work of a page does not grow with their number.

const AGAIN_MS = 5000;

export function listen(tell) {
  const source = new EventSource("/v1/events/pulse");
  source.onopen = () => tell({ state: "live" });
  source.onerror = () => {
    tell({ state: "lost" });
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS, tell);
  };
  source.addEventListener("pulse", ({ data }) => tell({ beat: JSON.parse(data) }));
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
