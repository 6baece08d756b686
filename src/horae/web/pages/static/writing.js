// Makes and changes jobs. What is typed is checked by a dry run, which also tells the moments that come of it.
import { ask, post } from "./api.js";
import { byId, later, make, when } from "./dom.js";
import { toast } from "./toasts.js";
import { clock, zone } from "./words.js";

const YAML = "application/yaml";

function say(form, text, kind = "") {
  const place = form.querySelector(".verdict");
  place.textContent = text;
  place.className = `verdict ${kind}`;
}

// Where something is wrong, what was expected, and what to do.
const wrong = (problem) => (problem.errors?.length ? problem.errors : [problem])
  .map((one) => [one.path, one.detail ?? one.message, one.hint].filter(Boolean).join(": ")).join(" · ");

function showMoments(form, previews) {
  const rows = previews.flatMap((preview) => [
    make("li", {}, make("b", { textContent: preview.description })),
    ...preview.moments.map((one) => make("li", {},
      make("span", {}, clock(one.at), make("small", { textContent: [one.local.replace("T", " "), one.note].filter(Boolean).join(" · ") })),
      make("span", { className: "end" }, when(one.at)))),
  ]);
  form.querySelector(".moments").replaceChildren(...rows);
}

async function check(form, body, type, path = "/v1/jobs?dry_run=true") {
  try {
    const plan = await post(path, body, { type });
    say(form, "It can be read, and is complete.", "good");
    showMoments(form, plan.items.flatMap((job) => job.triggers));
  } catch (problem) {
    say(form, wrong(problem), "bad");
    showMoments(form, []);
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

function startForm(form) {
  const look = later(() => {
    const job = read(form);
    if (!job.name && !job.schedule && !job.triggers) return;
    check(form, { ...job, name: job.name || "unnamed", steps: [{ run: job.steps[0].run.trim() || "true" }] });
  });
  form.addEventListener("input", ({ target }) => {
    if (target.name === "often") form.elements.schedule.value = target.value;
    else if (target.name === "schedule") form.elements.often.value = "";
    look();
  });
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

function startText(form) {
  const { method, path, version } = form.dataset;
  const area = form.elements.text;
  const before = area.value;
  const tryIt = () => check(form, area.value, YAML, version ? `${path}/plan` : undefined);
  const look = later(tryIt, 250);
  area.addEventListener("input", look);
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
  if (version) tryIt();
}

if (byId("make")) startForm(byId("make"));
if (byId("write")) startText(byId("write"));
