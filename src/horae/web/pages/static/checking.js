// What is typed of a job is checked by a dry run, which also tells the moments that come of it.
import { post } from "./api.js";
import { make, when } from "./dom.js";
import { toast } from "./toasts.js";
import { clock } from "./words.js";

const SHOWN = 5; // moments of a trigger that a plan tells; one with fewer has no others

function say(form, text, kind = "") {
  const place = form.querySelector(".verdict");
  place.textContent = text;
  place.className = `verdict ${kind}`;
}

// Where something is wrong, what was expected, and what to do.
const wrong = (problem) => (problem.errors?.length ? problem.errors : [problem])
  .map((one) => [one.path, one.detail ?? one.message, one.hint].filter(Boolean).join(": ")).join(" · ");

const momentsOf = (previews) => previews.flatMap((preview) => preview.moments);

// The moments of a plan before it was changed and after; only as far ahead as each trigger of both of them was looked at.
function compare(before, after) {
  const ends = [...before, ...after].map(({ moments }) => (moments.length < SHOWN ? Infinity : Date.parse(moments.at(-1).at)));
  const end = Math.min(...ends);
  const lack = (them, others) => momentsOf(them).filter((one) => Date.parse(one.at) <= end && !momentsOf(others).some(({ at }) => at === one.at));
  return { gone: lack(before, after), come: lack(after, before) };
}

function row(one, mark) {
  const local = make("small", { textContent: [one.local.replace("T", " "), one.note].filter(Boolean).join(" · ") });
  const said = mark ? [make(mark, { textContent: clock(one.at) }), make("small", { className: "note", textContent: mark === "ins" ? "new" : "no longer" })] : [clock(one.at)];
  return make("li", {}, make("span", {}, ...said, local), make("span", { className: "end" }, when(one.at)));
}

function showMoments(form, previews, before) {
  const { gone, come } = before ? compare(before, previews) : { gone: [], come: [] };
  const rows = previews.flatMap((preview) => [
    make("li", {}, make("b", { textContent: preview.description })),
    ...preview.moments.map((one) => row(one, come.includes(one) ? "ins" : "")),
  ]);
  if (gone.length) rows.push(make("li", {}, make("b", { textContent: "What goes" })), ...gone.map((one) => row(one, "del")));
  form.querySelector(".moments").replaceChildren(...rows);
}

// ── what is wrong with a field is said below it ──

const TRIGGER = /^triggers\.(\d+)(?:\.(.+))?$/;

// Returns the field that has what stands at this place of the document.
function fieldAt(form, path) {
  const place = path.replace(/\[(\d+)\]/g, ".$1");
  const [, number, part] = TRIGGER.exec(place) ?? [];
  if (number !== undefined) {
    const when = [...form.querySelectorAll(".when")][Number(number)];
    return when?.querySelector(`[name="${CSS.escape(part ?? "")}"]`) ?? when?.querySelector("[name=schedule]");
  }
  const fields = [...form.elements].filter((one) => one.name && !one.matches(":disabled"));
  return fields.find(({ name }) => place === name || place.startsWith(`${name}.`) || name.startsWith(`${place}.`));
}

function mark(form, problems) {
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  for (const said of form.querySelectorAll(".field .bad")) said.remove();
  for (const one of problems) {
    const field = fieldAt(form, one.path ?? "");
    if (!field || field.ariaInvalid === "true") continue;
    field.setAttribute("aria-invalid", "true");
    field.closest(".field")?.append(make("small", { className: "bad", textContent: [one.detail ?? one.message, one.hint].filter(Boolean).join(": ") }));
  }
}

function refuse(form, problem) {
  say(form, wrong(problem), "bad");
  if (!("text" in form.elements)) mark(form, problem.errors?.length ? problem.errors : [problem]);
}

// ── asking ──

const turns = new WeakMap(); // of forms: whose answer counts

// Returns the triggers that come of it, with their moments; `before` are those of the job as it is. `read` says what is
// asked, or throws.
export async function check(form, read, type, path = "/v1/jobs?dry_run=true", before = null) {
  const turn = (turns.get(form) ?? 0) + 1;
  turns.set(form, turn);
  try {
    const plan = await post(path, read(), { type });
    if (turns.get(form) !== turn) return null;
    const previews = plan.items.flatMap((job) => job.triggers);
    say(form, "It can be read, and is complete.", "good");
    mark(form, []);
    showMoments(form, previews, before);
    return previews;
  } catch (problem) {
    if (turns.get(form) !== turn) return null;
    refuse(form, problem);
    showMoments(form, []);
    return null;
  }
}

export async function send(form, act) {
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  try {
    await act();
  } catch (problem) {
    refuse(form, problem);
    toast(problem);
    button.disabled = false;
  }
}
