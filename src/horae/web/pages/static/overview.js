// The overview: kept fresh by events, and runs what failed again.
import { post } from "./api.js";
import { byId } from "./dom.js";
import { refresh } from "./fresh.js";
import { follow } from "./stream.js";
import { toast } from "./toasts.js";

const EVERY_MS = 2500;
const hadJobs = !byId("make");

function begin() {
  for (const button of document.querySelectorAll("[data-rerun]")) button.hidden = false;
}

async function look() {
  try {
    const isWhole = await refresh();
    if (!isWhole || (!hadJobs && !byId("make").matches(":focus-within, :hover") && !byId("make").elements.name.value)) location.reload();
    begin();
  } catch { /* the stream says that nobody answers */ }
}

document.addEventListener("click", async ({ target }) => {
  const job = target.dataset?.rerun;
  if (!job) return;
  target.disabled = true;
  try {
    const run = await post(`/v1/jobs/${job}/run`);
    toast(`Run ${run.id} is ${run.state}`);
  } catch (problem) {
    toast(problem);
    target.disabled = false;
  }
});

begin();
follow(() => true, look, EVERY_MS);
