// The page of a job: run, pause, resume; kept fresh while it is looked at.
import { post } from "./api.js";
import { byId } from "./dom.js";
import { refresh } from "./fresh.js";
import { follow } from "./stream.js";
import { toast } from "./toasts.js";

const id = byId("job").dataset.job;

function readData(form) {
  const text = form.elements.data.value.trim();
  if (!text) return {};
  const data = JSON.parse(text);
  if (data === null || typeof data !== "object" || Array.isArray(data)) throw new SyntaxError("an object expected, such as {\"full\": true}");
  return { data };
}

const ACTS = {
  run: () => byId("run-dialog").showModal(),
  pause: async () => { await post(`/v1/jobs/${id}/pause`); toast("Paused"); look(); },
  resume: async () => { await post(`/v1/jobs/${id}/resume`); toast("Resumed"); look(); },
};

document.addEventListener("click", async ({ target }) => {
  const act = ACTS[target.dataset?.act];
  if (!act) return;
  try {
    await act();
  } catch (problem) {
    toast(problem);
  }
});

byId("run-form")?.addEventListener("submit", async (event) => {
  if (event.submitter.value !== "yes") return;
  event.preventDefault();
  const verdict = event.target.querySelector(".verdict");
  try {
    const run = await post(`/v1/jobs/${id}/run`, readData(event.target));
    location.href = `/runs/${run.id}`;
  } catch (problem) {
    verdict.className = "verdict bad";
    verdict.textContent = [problem.message, problem.hint].filter(Boolean).join(": ");
  }
});

async function look() {
  if (!(await refresh())) return location.reload();
  begin();
}

function begin() {
  const year = document.querySelector(".heat").parentElement;
  year.scrollLeft = year.scrollWidth; // the last days are those that matter
  for (const acts of document.querySelectorAll(".acts")) acts.hidden = false;
}

begin();
if (!new URLSearchParams(location.search).has("cursor")) follow(({ jobs }) => jobs.includes(Number(id)), () => look().catch(() => {}), 1000);
