// One stream for all tabs of a browser: a shared worker holds it and passes on what comes. The server says at most once a
// second what kinds of things happened, and to which jobs; so the work of a page does not grow with their number. Of runs
// that tabs have open it says how they stand: the stream is opened anew when there are others.

const AGAIN_MS = 5000;
const SOON_MS = 30; // tabs that are opened together are one change
const MOST = 50; // runs that the server tells of: those that were looked at last

// Tells what comes. Answers a function that says which runs are watched.
export function listen(tell) {
  let runs = "";
  let source;
  let timer;
  const open = () => {
    clearTimeout(timer);
    source?.close();
    const opened = (source = new EventSource(`/v1/events/pulse${runs && `?runs=${runs}`}`));
    opened.onopen = () => tell({ state: "live" });
    opened.onerror = () => {
      tell({ state: "lost" });
      if (opened.readyState === EventSource.CLOSED) timer = setTimeout(open, AGAIN_MS);
    };
    opened.addEventListener("pulse", ({ data }) => tell({ beat: JSON.parse(data) }));
    opened.addEventListener("run", ({ data }) => tell({ standing: JSON.parse(data) }));
  };
  timer = setTimeout(open, SOON_MS);
  return (ids) => {
    const wanted = ids.slice(-MOST).sort((one, other) => one - other).join();
    if (wanted === runs) return;
    runs = wanted;
    clearTimeout(timer);
    timer = setTimeout(open, SOON_MS);
  };
}

if (typeof SharedWorkerGlobalScope !== "undefined") {
  const tabs = new Map(); // each with the runs that it watches, the one that was looked at last at the end
  const standings = new Map(); // of runs, as they were told last
  let state = "";
  const watch = listen((message) => {
    state = message.state ?? state;
    const id = message.standing?.run.id;
    if (id) standings.set(id, message);
    for (const [tab, runs] of tabs) if (!id || runs.includes(id)) tab.postMessage(message);
  });
  const watchAll = () => {
    const wanted = new Set([...tabs.values()].flat());
    for (const id of standings.keys()) if (!wanted.has(id)) standings.delete(id);
    watch([...wanted]);
  };
  self.onconnect = ({ ports: [tab] }) => {
    tabs.set(tab, []);
    tab.onmessage = ({ data: { runs } }) => {
      tabs.delete(tab);
      if (runs) tabs.set(tab, runs); // else it says goodbye
      for (const id of runs ?? []) if (standings.has(id)) tab.postMessage(standings.get(id));
      watchAll();
    };
    if (state) tab.postMessage({ state });
  };
}
