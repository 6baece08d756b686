// Makes and changes jobs. What is typed is checked by a dry run, which also tells the moments that come of it.
import { ask, get, post } from "./api.js";
import { byId, later, make, when } from "./dom.js";
import { toast } from "./toasts.js";
import { clock, zone } from "./words.js";

const YAML = "application/yaml";
const SHOWN = 5; // moments of a trigger that a plan tells; one with fewer has no others

function say(form, text, kind = "") {
  const place = form.querySelector(".verdict");
  place.textContent = text;
  place.className = `verdict ${kind}`;
}

// Where something is wrong, what was expected, and what to do.
const wrong = (problem) => (problem.errors?.length ? problem.errors : [problem])
  .map((one) => [one.path, one.detail ?? one.message, one.hint].filter(Boolean).join(": ")).join(" · ");

// The moments of a plan before it was changed and after; only as far ahead as both of them look.
function compare(before, after) {
  const ends = (them) => (them.length < SHOWN ? Infinity : Math.max(...them.map((one) => Date.parse(one.at))));
  const end = Math.min(ends(before), ends(after));
  const lack = (them, others) => them.filter((one) => Date.parse(one.at) <= end && !others.some(({ at }) => at === one.at));
  return { gone: lack(before, after), come: lack(after, before) };
}

function row(one, mark) {
  const local = make("small", { textContent: [one.local.replace("T", " "), one.note].filter(Boolean).join(" · ") });
  const said = mark ? [make(mark, { textContent: clock(one.at) }), make("small", { className: "note", textContent: mark === "ins" ? "new" : "no longer" })] : [clock(one.at)];
  return make("li", {}, make("span", {}, ...said, local), make("span", { className: "end" }, when(one.at)));
}

function showMoments(form, previews, before) {
  const after = previews.flatMap((preview) => preview.moments);
  const { gone, come } = before ? compare(before, after) : { gone: [], come: [] };
  const rows = previews.flatMap((preview) => [
    make("li", {}, make("b", { textContent: preview.description })),
    ...preview.moments.map((one) => row(one, come.includes(one) ? "ins" : "")),
  ]);
  if (gone.length) rows.push(make("li", {}, make("b", { textContent: "What goes" })), ...gone.map((one) => row(one, "del")));
  form.querySelector(".moments").replaceChildren(...rows);
}

// Returns the moments that come of it; `before` are those of the job as it is.
async function check(form, body, type, path = "/v1/jobs?dry_run=true", before = null) {
  try {
    const plan = await post(path, body, { type });
    const previews = plan.items.flatMap((job) => job.triggers);
    say(form, "It can be read, and is complete.", "good");
    showMoments(form, previews, before);
    return previews.flatMap((preview) => preview.moments);
  } catch (problem) {
    say(form, wrong(problem), "bad");
    showMoments(form, []);
    return null;
  }
}

async function send(form, act) {
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  try {
    await act();
  } catch (problem) {
    say(form, wrong(problem), "bad");
    toast(problem);
    button.disabled = false;
  }
}

// ── the form ──

function read(form) {
  const { name, run, schedule, timezone } = Object.fromEntries(new FormData(form));
  const job = { name: name.trim(), steps: [{ run }] };
  const every = /^every\s+(.+)$/.exec(schedule.trim());
  if (every) job.triggers = [{ every: every[1] }];
  else if (schedule.trim()) Object.assign(job, { schedule: schedule.trim(), timezone: timezone.trim() || "UTC" });
  return job;
}

// What is often wanted is written into the field beside it.
function followOften(form, look) {
  form.addEventListener("input", ({ target }) => {
    if (target.name === "often") form.elements.schedule.value = target.value;
    else if (target.name === "schedule") form.elements.often.value = "";
    look();
  });
}

function startForm(form) {
  const look = later(() => {
    const job = read(form);
    if (!job.name && !job.schedule && !job.triggers) return;
    check(form, { ...job, name: job.name || "unnamed", steps: [{ run: job.steps[0].run.trim() || "true" }] });
  });
  followOften(form, look);
  const zones = form.elements.timezone;
  if (zones.value === "UTC") zones.value = zone();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, async () => {
      const made = (await post("/v1/jobs", read(form))).jobs[0];
      if (form.elements.now.checked) await post(`/v1/jobs/${made.id}/run`);
      location.href = `/jobs/${made.id}`;
    });
  });
}

// ── as YAML ──

// The tasks of a workflow, as far as it can be read; the check says what is wrong with it.
async function drawTasks(form, text) {
  const isWorkflow = /^\s*"?tasks"?\s*:/m.test(text);
  const drawn = isWorkflow ? await post("/jobs/picture", text, { type: YAML, headers: { accept: "text/html" } }).catch(() => null) : "";
  if (drawn === null) return;
  form.querySelector(".picture").replaceChildren(...new DOMParser().parseFromString(drawn, "text/html").body.children);
}

function startText(form) {
  const { method, path, version } = form.dataset;
  const area = form.elements.text;
  const before = area.value;
  let were = null;
  const tryIt = () => {
    drawTasks(form, area.value);
    return check(form, area.value, YAML, version ? `${path}/plan` : undefined, were);
  };
  const look = later(tryIt, 250);
  area.addEventListener("input", look);
  form.elements.sample?.addEventListener("input", ({ target }) => { area.value = target.value; look(); });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, async () => {
      const headers = version ? { "if-match": `"${version}"` } : {};
      const done = await ask(method, path, { body: area.value, type: YAML, headers });
      removeEventListener("beforeunload", guard);
      location.href = `/jobs/${(done.jobs ?? [done])[0].id}`;
    });
  });
  const guard = (event) => { if (area.value !== before) event.preventDefault(); };
  addEventListener("beforeunload", guard);
  if (version) tryIt().then((moments) => { were = moments; });
}

// ── a job that exists, by a form ──

function whenOf(text, zone, before) {
  const every = /^every\s+(.+)$/.exec(text);
  if (every) return { every: every[1] };
  return "cron" in before ? { ...before, cron: text, timezone: zone } : { cron: text, timezone: zone };
}

function changed(job, form) {
  const { name, run, schedule, timezone } = Object.fromEntries(new FormData(form));
  const made = { ...job, name: name.trim() };
  if (run !== undefined) made.spec = { ...job.spec, steps: [{ ...job.spec.steps[0], run: run.replaceAll("\r\n", "\n") }] };
  const [trigger] = job.triggers;
  const isSame = schedule === form.elements.schedule?.defaultValue && timezone === form.elements.timezone?.defaultValue;
  if (schedule === undefined || isSame) return made;
  if (!schedule.trim()) return { ...made, triggers: [] };
  const wanted = whenOf(schedule.trim(), timezone.trim() || "UTC", trigger?.schedule ?? {});
  const { id, data, enabled, key } = trigger ?? {};
  return { ...made, triggers: [trigger ? { id, data, enabled, key, schedule: wanted } : { schedule: wanted }] };
}

async function startChange(form) {
  const { path } = form.dataset;
  const job = await get(path);
  const plan = (before) => check(form, changed(job, form), undefined, `${path}/plan`, before);
  const were = await plan(null);
  const look = later(() => plan(were));
  followOften(form, look);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, async () => {
      await ask("PUT", path, { body: changed(job, form), headers: { "if-match": `"${form.dataset.version}"` } });
      location.href = path.replace("/v1", "");
    });
  });
}

if (byId("make")) startForm(byId("make"));
if (byId("change")) startChange(byId("change")).catch(toast);
if (byId("write")) startText(byId("write"));
