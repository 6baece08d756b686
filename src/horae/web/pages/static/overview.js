// The overview: kept fresh by events, runs what failed again, and asks the forecast where places run out.
import { get, post } from "./api.js";
import { byId, make, when } from "./dom.js";
import { refresh } from "./fresh.js";
import { follow } from "./stream.js";
import { toast } from "./toasts.js";
import { clock } from "./words.js";

const EVERY_MS = 2500;
const FORETELL_MS = 300_000;
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

async function foretell() {
  try {
    const { shortages } = await get("/v1/forecast?hours=12&limit=0");
    byId("foretold").replaceChildren(...shortages.slice(0, 3).map((one) => make("p", { className: "warning" },
      make("b", { textContent: `${one.name || one.what} will run short ` }), when(one.start_at),
      ` (${clock(one.start_at)}): ${Math.round(one.wanted)} wanted, ${one.capacity ?? "fewer"} there. `, make("a", { href: "/forecast", textContent: "Forecast" }))));
  } catch { /* a forecast is not needed to see what is */ }
  setTimeout(foretell, FORETELL_MS);
}

begin();
foretell();
follow(() => true, look, EVERY_MS);
