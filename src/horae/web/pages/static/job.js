// The page of a job: run, pause, resume; kept fresh while it is looked at.
import { post } from "./api.js";
import { byId } from "./dom.js";
import { refresh } from "./fresh.js";
import { follow } from "./stream.js";
import { toast } from "./toasts.js";

const id = byId("job").dataset.job;

// The form of the page to run it, here: what is wrong with what was sent is said in the next one.
async function askForData(sent) {
  const to = `/jobs/${id}/run`;
  const headers = { accept: "text/html" };
  const answer = await fetch(to, sent ? { method: "POST", body: new URLSearchParams(new FormData(sent)), headers } : { headers });
  if (sent && answer.redirected) return location.assign(answer.url);
  const form = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("run-form");
  if (!form) return location.assign(to);
  const dialog = byId("run-dialog");
  dialog.replaceChildren(form);
  if (!dialog.open) dialog.showModal();
  (form.querySelector("[aria-invalid]") ?? form.querySelector("input:not([type=hidden]), select, textarea"))?.focus();
}

const ACTS = {
  run: () => askForData(),
  pause: async () => { await post(`/v1/jobs/${id}/pause`); toast("Paused"); look(); },
  resume: async () => { await post(`/v1/jobs/${id}/resume`); toast("Resumed"); look(); },
};

document.addEventListener("click", async (event) => {
  const { target } = event;
  if (target.closest?.("#run-dialog [data-leave]")) {
    event.preventDefault();
    byId("run-dialog").close();
  }
  const act = ACTS[target.dataset?.act];
  if (!act || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  try {
    await act();
  } catch (problem) {
    toast(problem);
  }
});

byId("run-dialog")?.addEventListener("submit", (event) => {
  event.preventDefault();
  askForData(event.target).catch(toast);
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
