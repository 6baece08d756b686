// The log of a run: only the lines that are seen are read and drawn, so that its size does not matter. The server says
// where lines lie, and looks for text.
import { get } from "./api.js";
import { draw } from "./ansi.js";
import { byId, later, make } from "./dom.js";
import { toast } from "./toasts.js";
import { clock, count } from "./words.js";

const { run } = byId("run").dataset;
const isChosen = new URLSearchParams(location.search).has("attempt"); // then no other is shown
let attempt = Number(byId("log").dataset.attempt);
let which = attempt > 0 ? `&attempt=${attempt}` : "";
const box = byId("lines");
const view = byId("view");
const TALLEST = 10_000_000; // pixels: browsers have an end
const KEPT = 60; // blocks in memory
const AROUND = 10; // lines drawn beyond what is seen
const MOST_HITS = 1000;
const MOST_HEADS = 1000; // steps that can be folded and gone to
const FIRST_LOOK = 256 * 1024; // bytes in which lines are looked for at first, so that the first ones are soon there,
const TIMES = "horae-times"; // what this browser remembers
const MOST_TIMES = 10_000; // that one answer tells
const MOST_LOOK = 16 * 1024 * 1024; // and at most

const log = { blocks: [], heads: [], error: null, offset: 0, line: 1, size: 0, lines: 0, state: byId("run").dataset.state };
const texts = new Map(); // first line of a block → its lines, the last used last
const reading = new Map();
const starts = new Map(); // first line of a block → where each of its lines begins
let times = null; // when pieces of the log were stored: {offset, at}; null while nobody wants to know
let sections = []; // {first, last, title, isFolded}
let sectionAt = new Map(); // by the first line
let pieces = []; // what is shown: {row, line, count}
let rows = 0;
let target = 0; // the line that the address names
let hits = [];
let hit = -1;
let wanted = "";
let isFollowing = false;
let isPlaced = false; // where one comes to is shown, or somebody has begun to read elsewhere
let rowHeight = 24;

// ── where lines lie ──

// The last one of a sorted list for which something holds.
function lastOf(list, holds) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(list[middle])) low = middle + 1;
    else high = middle;
  }
  return list[low - 1];
}

async function index() {
  let isEnd = false;
  const mine = attempt;
  for (let limit = FIRST_LOOK; !isEnd; limit = Math.min(4 * limit, MOST_LOOK)) {
    const found = await get(`/v1/runs/${run}/log/index?offset=${log.offset}&line=${log.line}&limit=${limit}${which}`);
    if (mine !== attempt) return;
    for (const block of found.blocks) {
      const last = log.blocks.at(-1);
      if (last && block.line < last.line) continue;
      if (last?.line === block.line) texts.delete(block.line); // it has grown
      else if (!last || block.offset - last.offset >= 32768 || block.line - last.line > 2000) log.blocks.push(block);
      else texts.delete(last.line);
    }
    const heads = found.heads.filter((head) => head.line > (log.heads.at(-1)?.line ?? 0));
    log.heads.push(...heads.slice(0, MOST_HEADS - log.heads.length));
    log.error ??= found.first_error;
    Object.assign(log, { offset: found.next_offset, line: found.next_line, state: found.state });
    isEnd = found.is_end;
    log.size = found.size ?? found.next_offset; // as far as it is known
    log.lines = log.size > found.next_offset ? found.next_line : found.next_line - 1;
    if (log.blocks.length) texts.delete(log.blocks.at(-1).line);
    layOut();
    place(isEnd);
  }
  await askTimes();
}

const isBegin = (head) => !/ ended with | after [0-9.]+ s /.test(head.text);

function layOut() {
  const folded = new Set(sections.filter((one) => one.isFolded).map((one) => one.first));
  const begins = log.heads.filter(isBegin);
  sections = begins.map((head, number) => ({
    first: head.line, last: (begins[number + 1]?.line ?? log.lines + 1) - 1, title: head.text.replaceAll("──", "").trim(), isFolded: folded.has(head.line),
  }));
  sectionAt = new Map(sections.map((one) => [one.first, one]));
  if (byId("steps").options.length !== sections.length + 1) {
    byId("steps").replaceChildren(make("option", { value: "", textContent: "Steps…" }), ...sections.map((one) => make("option", { value: one.first, textContent: one.title.slice(0, 80) })));
  }
  byId("steps").hidden = byId("fold").hidden = sections.length < 2;
  byId("first-error").hidden = !log.error;
  const before = scale();
  const top = lineAt(Math.floor((box.scrollTop * before) / rowHeight));
  pieces = [];
  rows = 0;
  let line = 1;
  const add = (until) => {
    if (until >= line) pieces.push({ row: rows, line, count: until - line + 1 });
    rows += Math.max(0, until - line + 1);
    line = until + 1;
  };
  for (const one of sections.filter((it) => it.isFolded)) {
    add(one.first);
    line = one.last + 1;
  }
  add(log.lines);
  box.hidden = rows === 0;
  byId("quiet").hidden = rows > 0;
  rowHeight = Math.max(14, parseFloat(getComputedStyle(box).lineHeight) || 24);
  byId("height").style.height = `${Math.min(TALLEST, rows * rowHeight)}px`;
  if (isFollowing) box.scrollTop = box.scrollHeight;
  else if (scale() !== before) box.scrollTop = (rowOf(top) * rowHeight) / scale(); // with more lines a pixel stands for more of them
  show();
}

function lineAt(row) {
  const piece = lastOf(pieces, (one) => one.row <= row);
  return piece ? piece.line + row - piece.row : 1;
}

function rowOf(line) {
  const piece = lastOf(pieces, (one) => one.line <= line);
  return piece ? piece.row + Math.min(line - piece.line, piece.count - 1) : 0;
}

// ── what they say ──

const blockOf = (line) => lastOf(log.blocks, (block) => block.line <= line);

async function read(block) {
  const next = log.blocks[log.blocks.indexOf(block) + 1];
  const limit = Math.min(8 * 1024 * 1024, Math.max(1, (next?.offset ?? log.size) - block.offset));
  const mine = attempt;
  const text = await get(`/v1/runs/${run}/log?offset=${block.offset}&limit=${limit}${which}`);
  if (mine !== attempt) return;
  texts.set(block.line, text.split("\n"));
  while (texts.size > KEPT) texts.delete(texts.keys().next().value);
}

function textOf(line) {
  const block = blockOf(line);
  if (!block) return "";
  const lines = texts.get(block.line);
  if (lines) return lines[line - block.line] ?? "";
  if (!reading.has(block.line)) {
    const begun = read(block).then(show, toast).finally(() => { if (reading.get(block.line) === begun) reading.delete(block.line); });
    reading.set(block.line, begun);
  }
  return null;
}

// ── when it was said ──

const encoder = new TextEncoder();

function offsetOf(line) {
  const block = blockOf(line);
  const lines = block && texts.get(block.line);
  if (!lines) return null;
  if (starts.get(block.line)?.lines !== lines) {
    let at = block.offset;
    const offsets = lines.map((text) => { const begin = at; at += encoder.encode(text).length + 1; return begin; });
    starts.set(block.line, { lines, offsets });
    while (starts.size > KEPT) starts.delete(starts.keys().next().value);
  }
  return starts.get(block.line).offsets[line - block.line] ?? null;
}

// A line is as old as the piece in which it ends.
function timeOf(line) {
  const next = offsetOf(line) === null ? null : offsetOf(line) + encoder.encode(textOf(line) ?? "").length;
  const found = next === null ? null : lastOf(times, (piece) => piece.offset <= next);
  const shown = found ? clock(found.at) : "";
  return make("time", { className: "at", dateTime: found?.at ?? "", title: shown, textContent: shown.split(" ")[2] ?? "" });
}

async function readTimes() {
  const mine = times;
  for (let isEnd = !mine; !isEnd;) {
    const from = mine.at(-1)?.offset ?? 0;
    const { items } = await get(`/v1/runs/${run}/log/times?offset=${from}&limit=${MOST_TIMES}${which}`);
    if (mine !== times) return;
    mine.push(...items.slice(mine.length ? 1 : 0));
    isEnd = items.length < MOST_TIMES;
  }
  show();
}

let asking = Promise.resolve();
const askTimes = () => { asking = asking.then(readTimes).catch(toast); return asking; }; // the log is read without them, too

// Browsers that keep nothing refuse to be asked.
function remember(value) {
  try {
    localStorage.setItem(TIMES, value);
  } catch { /* then it holds for this page */ }
}

function remembered() {
  try {
    return localStorage.getItem(TIMES);
  } catch {
    return "";
  }
}

function setTimes(value) {
  times = value ? [] : null;
  byId("times").checked = value;
  remember(value ? "yes" : "");
  askTimes();
  show();
}

// ── what is seen ──

const scale = () => Math.max(1, (rows * rowHeight - box.clientHeight) / Math.max(1, byId("height").clientHeight - box.clientHeight));

function drawRow(row) {
  const line = lineAt(row);
  const text = textOf(line);
  const section = sectionAt.get(line);
  const number = make("a", { href: `#L${line}`, className: "no", textContent: line });
  const said = make("span", { className: "said" });
  const made = make("div", { className: "line" }, number, ...(times ? [timeOf(line)] : []), said);
  if (section) {
    const fold = make("button", { type: "button", className: "plain fold", textContent: section.isFolded ? "▸" : "▾", ariaLabel: `${section.isFolded ? "Unfold" : "Fold"} ${section.title}`, ariaExpanded: String(!section.isFolded) });
    fold.dataset.fold = section.first;
    said.append(fold);
    made.classList.add("head");
  }
  if (text === null) said.append("…");
  else draw(said, text, wanted);
  if (section?.isFolded) said.append(make("span", { className: "odd", textContent: `${count(section.last - section.first)} lines` }));
  if (line === target) made.classList.add("target");
  if (line === log.error?.line) made.classList.add("error");
  return made;
}

let isAsked = false;
function show() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    const top = box.scrollTop * scale();
    const first = Math.max(0, Math.floor(top / rowHeight) - AROUND);
    const last = Math.min(rows, Math.ceil((top + box.clientHeight) / rowHeight) + AROUND);
    view.style.transform = `translateY(${box.scrollTop - (top - first * rowHeight)}px)`;
    view.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, at) => drawRow(first + at)));
  });
}

function goTo(line, isMarked = true) {
  const section = sections.find((one) => one.isFolded && one.first < line && line <= one.last);
  if (section) {
    section.isFolded = false;
    layOut();
  }
  if (isMarked) target = line;
  setFollowing(false);
  box.scrollTop = Math.max(0, (rowOf(line) * rowHeight - box.clientHeight / 3) / scale());
  show();
}

function setFollowing(value) {
  isFollowing = value;
  byId("follow").checked = value;
  if (value) box.scrollTop = box.scrollHeight;
}

const lineOfAddress = () => Number(/^#L([1-9][0-9]{0,12})$/.exec(location.hash)?.[1] ?? 0);

function goToAddress() {
  if (!lineOfAddress()) return;
  goTo(Math.min(lineOfAddress(), Math.max(1, log.lines)));
  byId("log").scrollIntoView({ block: "nearest" });
}

// Where one comes to: the line that the address names, else the first error of what failed, else the end of what goes
// on; as soon as it is known where that is.
function place(isWhole) {
  const isLive = ["queued", "blocked", "running"].includes(log.state);
  if (isPlaced) return;
  if (lineOfAddress()) {
    if (!isWhole && log.lines < lineOfAddress()) return;
    goToAddress();
  } else if (isLive) setFollowing(true);
  else if (log.error && ["failed", "timed_out"].includes(log.state)) goTo(log.error.line);
  isPlaced = isWhole || isFollowing || target > 0;
}

// ── looking for text ──

let search = 0;
async function seek() {
  const text = byId("seek").value;
  const mine = (search += 1);
  wanted = text.toLowerCase();
  hits = [];
  hit = -1;
  byId("hits").textContent = text ? "searching…" : "";
  show();
  try {
    for (let place = { next_offset: 0, next_line: 1 }; text && !place.is_end && hits.length < MOST_HITS;) {
      place = await get(`/v1/runs/${run}/log/matches?q=${encodeURIComponent(text)}&offset=${place.next_offset}&line=${place.next_line}&limit=500${which}`);
      if (mine !== search) return;
      const isFirst = hits.length === 0;
      hits.push(...place.items.map((one) => one.line));
      if (isFirst && hits.length) step(1);
    }
  } catch (problem) {
    return toast(problem);
  }
  if (mine === search) showHits();
}

function showHits() {
  const all = `${count(hits.length)}${hits.length >= MOST_HITS ? "+" : ""}`;
  byId("hits").textContent = !byId("seek").value ? "" : hits.length ? `${hit + 1} of ${all}` : "not found";
  byId("prev").hidden = byId("next").hidden = hits.length < 2;
}

function step(by) {
  if (!hits.length) return;
  hit = (hit + by + hits.length) % hits.length;
  goTo(hits[hit]);
  showHits();
}

// ── hands ──

for (const kind of ["wheel", "pointerdown", "keydown"]) box.addEventListener(kind, () => { isPlaced = true; }, { passive: true });
box.addEventListener("scroll", () => {
  if (isFollowing && box.scrollHeight - box.scrollTop - box.clientHeight > 60) setFollowing(false);
  show();
});
box.addEventListener("click", ({ target: place }) => {
  const first = Number(place.dataset?.fold);
  const section = sectionAt.get(first);
  if (!section) return;
  section.isFolded = !section.isFolded;
  layOut();
});
byId("seek").addEventListener("input", later(seek, 250));
byId("seek").addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    event.preventDefault();
    step(event.shiftKey ? -1 : 1);
  }
});
byId("prev").addEventListener("click", () => step(-1));
byId("next").addEventListener("click", () => step(1));
byId("steps").addEventListener("change", ({ target: place }) => {
  if (place.value) goTo(Number(place.value));
  place.value = "";
});
byId("fold").addEventListener("click", () => {
  const isAny = sections.some((one) => !one.isFolded);
  sections.forEach((one) => { one.isFolded = isAny; });
  byId("fold").textContent = isAny ? "Unfold steps" : "Fold steps";
  layOut();
});
byId("first-error").addEventListener("click", () => goTo(log.error.line));
byId("times").addEventListener("change", ({ target: place }) => setTimes(place.checked));
byId("follow").addEventListener("change", ({ target: place }) => setFollowing(place.checked));
addEventListener("hashchange", goToAddress);
new ResizeObserver(show).observe(box);

let growing;
export async function grow() {
  growing ??= index().finally(() => { growing = undefined; });
  await growing;
}

// ── tried again ──

// Each attempt has a log of its own.
async function turnTo(next) {
  attempt = next; // what is being read of the one before is dropped
  which = `&attempt=${next}`;
  Object.assign(log, { blocks: [], heads: [], error: null, offset: 0, line: 1, size: 0, lines: 0 });
  texts.clear();
  reading.clear();
  times &&= [];
  target = 0;
  byId("log").dataset.attempt = next;
  byId("whose").textContent = next > 1 ? `of attempt ${next}` : "";
  byId("download").href = `/v1/runs/${run}/log/file?attempt=${next}`;
  byId("newer").hidden = true;
  layOut();
  setFollowing(true);
  await growing?.catch(() => {});
  await grow();
  if (wanted) seek();
}

// Who follows the log goes on with that of the next attempt; who reads is asked.
function hear(next) {
  if (!next || next <= attempt || isChosen) return growSoon();
  if (attempt === 0 || isFollowing || rows === 0) return turnTo(next).catch(toast);
  byId("newer").hidden = false;
  byId("newer").textContent = `Attempt ${next} runs: show its log`;
  byId("newer").dataset.attempt = next;
}

const growSoon = later(grow, 200);
byId("newer").addEventListener("click", ({ target: button }) => turnTo(Number(button.dataset.attempt)).catch(toast));

async function begin() {
  if (remembered()) setTimes(true);
  try {
    await grow();
  } catch (problem) {
    byId("quiet").textContent = problem.detail ?? "The log cannot be read.";
  }
}

document.addEventListener("horae-log", ({ detail }) => hear(detail.attempt));
begin();
