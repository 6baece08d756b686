// Buttons that do one thing: ask, post, say what came of it, and show the page as it is then.
import { ask, post } from "./api.js";
import { refresh } from "./fresh.js";
import { showOnce } from "./once.js";
import { sure } from "./sure.js";
import { toast } from "./toasts.js";

async function act(button) {
  const { post: path, ask: question, done, once, body, method = "POST" } = button.dataset;
  if (question && !(await sure(done, question, button.textContent, true))) return;
  button.disabled = true;
  try {
    const answer = await ask(method, path, { body });
    if (answer?.is_sent === false) toast({ detail: answer.detail, hint: "nothing was sent" });
    else if (once) await showOnce(done, answer[once]);
    else toast(`${done}: done`);
    button.blur();
    if (path.endsWith("/retry")) location.href = `/runs/${answer.id}`;
    else await refresh(true);
  } catch (problem) {
    toast(problem);
  }
  button.disabled = false;
}

async function rerun(button) {
  const id = Number(button.dataset.rerun);
  button.disabled = true;
  try {
    const key = crypto.randomUUID?.() ?? String(Math.random());
    const [answer] = (await post("/v1/runs/rerun", { runs: [id] }, { headers: { "idempotency-key": key } })).items;
    if (answer.error) throw answer.error;
    location.href = `/runs/${answer.run.id}`;
  } catch (problem) {
    toast(problem);
    button.disabled = false;
  }
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest?.("[data-post], [data-rerun]");
  if (button) (button.dataset.post ? act : rerun)(button);
});
