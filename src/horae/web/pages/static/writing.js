// Makes and changes jobs as YAML. What is typed is checked, and the tasks of a workflow are drawn.
import { ask, post } from "./api.js";
import { check, send } from "./checking.js";
import { byId, later } from "./dom.js";

const YAML = "application/yaml";

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
    return check(form, () => area.value, YAML, version ? `${path}/plan` : undefined, were);
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
  if (version) tryIt().then((previews) => { were = previews; });
}

startText(byId("write"));
