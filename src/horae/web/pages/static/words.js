// How scripts say moments, durations and states: as pages/words.py does.

export const MARKS = {
  succeeded: "✓", failed: "✗", timed_out: "◷", running: "●", queued: "○", blocked: "◌", cancelled: "■", skipped: "↷", coalesced: "↪",
};
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

// Reasons as core/runs/wording.py says them.
const REASONS = {
  children: "its tasks", debounce: "more may come", error: "it broke", exit: "exit code", later: "for later", limit: "limits",
  lost: "lost its agent", oom: "out of memory", owner: "rights of its owner", processes: "too many processes",
  requested: "on request", signal: "waits to be told",
};

export const because = (reason) => REASONS[reason] ?? plain(reason);
export const plain = (word) => word.replaceAll("_", " ");
export const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");

export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (Math.abs(ms) < 1000) return `${Math.round(ms)} ms`;
  if (Math.abs(ms) < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function away(moment, now = Date.now()) {
  if (!moment) return "–";
  const seconds = (Date.parse(moment) - now) / 1000;
  const far = Math.abs(seconds);
  if (far < 1) return "now";
  const [unit, word] = UNITS.find(([least]) => far >= least);
  return seconds > 0 ? `in ${Math.floor(far / unit)} ${word}` : `${Math.floor(far / unit)} ${word} ago`;
}

export function took(run, now = Date.now()) {
  if (!run.started_at) return "–";
  return span(Math.max(0, (run.finished_at ? Date.parse(run.finished_at) : now) - Date.parse(run.started_at)));
}

export const zone = () => document.documentElement.dataset.zone;

// Sun 2027-03-28 04:30:00 CEST
export function clock(moment) {
  if (!moment) return "–";
  const parts = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone(), weekday: "short", year: "numeric", month: "2-digit", day: "2-digit",
    hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
  }).formatToParts(new Date(moment));
  const of = Object.fromEntries(parts.map(({ type, value }) => [type, value]));
  return `${of.weekday} ${of.year}-${of.month}-${of.day} ${of.hour}:${of.minute}:${of.second} ${of.timeZoneName}`;
}
