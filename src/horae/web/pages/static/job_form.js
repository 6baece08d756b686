// The form in which jobs are made and changed: what was typed goes to its place in the document of the job, and all the
// rest of that stays as it is.
import { Problem, ask, post } from "./api.js";
import { check, send } from "./checking.js";
import { byId, later } from "./dom.js";
import { zone } from "./words.js";

// Of a schedule, in which way it is written; else it is cron.
const WAYS = [
  ["every", /^@?every\s+(.+)$/i], ["every", /^((?:\d+(?:\.\d+)?(?:ms|[smhdw]))+)$/], ["every", /^(P(?:T|\d).*)$/],
  ["rrule", /^((?:RRULE:)?.*FREQ=.*)$/], ["at", /^(\d{4}-\d\d-\d\d[T ].*)$/],
];
const KEPT = ["id", "key", "name", "data", "enabled", "jitter"]; // of a trigger that is written in another way
const PARTS = ["schedule", "timezone", "start_at", "end_at"];

function fault(path, detail, hint) {
  return new Problem(0, { code: "E_PATTERN", detail, hint, errors: [{ path, detail, hint }] });
}

// ── from text to a value ──

function readLines(text, path) {
  return Object.fromEntries(text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw fault(path, `VARIABLE=value expected, got ${line.slice(0, 40)}`);
    return [line.slice(0, at).trim(), line.slice(at + 1)];
  }));
}

function readJson(text, path) {
  try {
    return JSON.parse(text);
  } catch {
    throw fault(path, "JSON expected", 'such as {"full": true}');
  }
}

const SHAPES = {
  number: (text) => (Number.isFinite(Number(text)) ? Number(text) : text), // else the server says what it wants
  list: (text) => text.split(",").map((one) => one.trim()).filter(Boolean),
  lines: readLines,
  json: readJson,
};

function valueOf(field) {
  const text = field.tagName === "TEXTAREA" ? field.value : field.value.trim();
  return text.trim() ? (SHAPES[field.dataset.shape] ?? String)(text, field.name) : undefined;
}

function isChanged(field) {
  if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
  return field.selectedIndex !== Math.max(0, [...field.options].findIndex((one) => one.defaultSelected));
}

// Puts a value at its place; without one, the place is left out.
function put(place, [name, ...rest], value) {
  if (!rest.length) {
    if (value === undefined) delete place[name];
    else place[name] = value;
    return;
  }
  if (value === undefined && place[name] === undefined) return;
  place[name] ??= /^\d+$/.test(rest[0]) ? [] : {};
  put(place[name], rest, value);
  if (!Array.isArray(place) && Object.keys(place[name]).length === 0) delete place[name];
}

// ── when ──

function wayOf(text) {
  for (const [way, pattern] of WAYS) {
    const found = pattern.exec(text);
    if (found) return [way, found[1]];
  }
  return ["cron", text];
}

function readTrigger(place, before) {
  const known = before.find((one) => String(one.id) === place.dataset.id);
  const field = (part) => place.querySelector(`[name=${part}]`);
  if (known && !PARTS.some((part) => field(part) && isChanged(field(part)))) return [known];
  const text = field("schedule").value.trim();
  if (!text) return [];
  const [way, value] = wayOf(text);
  const made = known && way in known ? { ...known } : Object.fromEntries(KEPT.filter((name) => name in (known ?? {})).map((name) => [name, known[name]]));
  if (isChanged(field("schedule"))) delete made.dialect;
  made[way] = value;
  for (const part of ["start_at", "end_at"]) if (!known || isChanged(field(part))) put(made, [part], field(part).value || undefined);
  const isLocal = way === "cron" || way === "rrule" || made.start_at || made.end_at || !/(Z|[+-]\d\d:\d\d)$/.test(value);
  if (way !== "every" || isLocal) put(made, ["timezone"], (isLocal && field("timezone").value.trim()) || undefined);
  return [made];
}

// ── the whole ──

function read(form, document) {
  const made = structuredClone(document);
  for (const field of form.elements) {
    if (!field.name || field.closest(".when") || field.matches(":disabled, [type=radio]") || !isChanged(field)) continue;
    put(made, field.name.split("."), valueOf(field));
  }
  made.triggers = [...form.querySelectorAll(".when")].flatMap((place) => readTrigger(place, document.triggers));
  return made;
}

function followHands(form, look) {
  form.addEventListener("input", ({ target }) => {
    const schedule = target.closest(".when")?.querySelector("[name=schedule]");
    if ("often" in target.dataset) schedule.value = target.value;
    else if (target === schedule) target.closest(".when").querySelector("[data-often]").value = "";
    look();
  });
  form.addEventListener("click", ({ target }) => {
    if ("add" in target.dataset) {
      const fresh = form.querySelector("template").content.cloneNode(true).firstElementChild;
      form.querySelector(".triggers").append(fresh);
      fresh.querySelector("[name=schedule]").focus();
    } else if ("remove" in target.dataset) {
      target.closest(".when").remove();
      look();
    }
  });
}

// ── a new job ──

function chooseKind(form, kind) {
  for (const place of form.querySelectorAll("[data-kind]")) {
    place.hidden = place.disabled = place.dataset.kind !== kind;
  }
}

// As far as it is written: what is still missing is not told while somebody types.
function drafted(form) {
  const made = read(form, { triggers: [] });
  const [needed] = form.querySelectorAll("[data-kind]:not([hidden]) [required]");
  if (!needed.value.trim()) made.steps = [{ run: "true" }];
  return { ...made, name: made.name ?? "unnamed" };
}

function startNew(form) {
  for (const field of form.querySelectorAll(".when [name=timezone]")) if (field.value === "UTC") field.value = zone();
  const look = later(() => check(form, () => drafted(form)));
  followHands(form, look);
  form.addEventListener("change", ({ target }) => { if (target.name === "kind") chooseKind(form, target.value); });
  chooseKind(form, form.querySelector("[name=kind]:checked").value);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, async () => {
      const made = (await post("/v1/jobs", read(form, { triggers: [] }))).jobs[0];
      if (form.querySelector("[data-now]").checked) await post(`/v1/jobs/${made.id}/run`);
      location.href = `/jobs/${made.id}`;
    });
  });
}

// ── one that exists ──

async function startChange(form) {
  const { path, version } = form.dataset;
  const document = JSON.parse(form.dataset.document);
  const plan = (before) => check(form, () => read(form, document), undefined, `${path}/plan`, before);
  let were = null;
  followHands(form, later(() => plan(were)));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, async () => {
      await ask("PUT", path, { body: read(form, document), headers: { "if-match": `"${version}"` } });
      location.href = path.replace("/v1", "");
    });
  });
  were = await plan(null);
}

if (byId("make")) startNew(byId("make"));
if (byId("change")) startChange(byId("change"));
