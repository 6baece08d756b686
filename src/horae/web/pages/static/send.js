// Forms that send what they hold to the API, as JSON: fields that are empty are left out, and {name} in the address is the
// field of that name. A field may be named by another: [data-named=on] has the name that was chosen in "on".
import { ask } from "./api.js";
import { refresh } from "./fresh.js";
import { showOnce } from "./once.js";
import { toast } from "./toasts.js";

function read(form) {
  const values = {};
  for (const field of form.elements) {
    const value = field.type === "password" ? field.value : field.value.trim();
    if (!field.name || "names" in field.dataset || !value) continue;
    const name = field.dataset.named ? form.elements[field.dataset.named].value : field.name;
    values[name] = name === "job" ? Number(value) : value;
  }
  return values;
}

async function send(form) {
  const { send: to, done, once } = form.dataset;
  const values = read(form);
  const [method, template] = to.split(" ");
  const path = template.replace(/{(\w+)}/g, (_, name) => {
    const value = values[name];
    delete values[name];
    return encodeURIComponent(value);
  });
  const answer = await ask(method, path, { body: values });
  form.reset();
  if (once) await showOnce(done, answer[once]);
  else toast(`${done}: done`);
  document.activeElement?.blur();
  await refresh(true);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.send) return;
  event.preventDefault();
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  try {
    await send(form);
  } catch (problem) {
    toast(problem);
  }
  button.disabled = false;
});
