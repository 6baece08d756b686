// Approves or rejects what a run waits for, and keeps the tasks and the questions of a page fresh while it is visible.
// Other sites cannot press these buttons: their requests carry their own Origin, and are refused.

import { follow } from "./stream.js";

const EVERY_MS = 2000;
const VERBS = { approve: "Approved.", reject: "Rejected." };
const byId = (id) => document.getElementById(id);

async function decide(card, verb) {
  const buttons = card.querySelectorAll("button");
  const outcome = card.querySelector(".outcome");
  buttons.forEach((button) => { button.disabled = true; });
  outcome.className = "outcome";
  outcome.textContent = "…";
  try {
    const answer = await fetch(`/v1/runs/${card.dataset.question}/${verb}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ comment: card.querySelector("input").value }),
    });
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail ?? `the server answered ${answer.status}`);
    card.dataset.decided = verb;
    card.querySelector(".decide").hidden = true;
    card.querySelector(".what").textContent = "was decided";
    outcome.textContent = VERBS[verb];
  } catch (error) {
    outcome.className = "outcome wrong";
    outcome.textContent = error.message;
    buttons.forEach((button) => { button.disabled = false; });
  }
}

byId("questions").addEventListener("click", (event) => {
  const verb = event.target.dataset.verb;
  if (verb) decide(event.target.closest("[data-question]"), verb);
});

// What was typed, and what was decided here, stays: only questions that came or went are changed.
function freshen(page) {
  const flow = byId("tasks");
  const drawn = page.getElementById("tasks");
  if (flow && drawn && flow.innerHTML !== drawn.innerHTML) flow.replaceWith(drawn);
  const asked = new Map([...page.querySelectorAll("[data-question]")].map((card) => [card.dataset.question, card]));
  for (const card of document.querySelectorAll("[data-question]")) {
    const isOpen = asked.delete(card.dataset.question);
    if (!isOpen && !card.dataset.decided) card.remove();
  }
  byId("questions").append(...asked.values());
}

let isSeen = false; // how it ended
async function look() {
  if (isSeen) return;
  const isLast = isOver();
  try {
    const answer = await fetch(location.pathname, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    freshen(new DOMParser().parseFromString(await answer.text(), "text/html"));
    isSeen = isLast;
  } catch { /* the server is away: the mark says so */ }
}

// Nothing changes on the page of a run that has ended, and run.js sees to one without tasks and questions.
const isOver = () => document.querySelector("[data-clock=finished_at]").textContent.trim() !== "–";
if (!isOver() && document.querySelector("#tasks, [data-question]")) {
  follow(({ kinds }) => kinds.some((kind) => kind.startsWith("run.")), look, EVERY_MS);
}
