// Forms that send what they hold to the API, as JSON: fields that are empty are left out, and {name} in the address is the
// field of that name. A field may be named by another: [data-named=on] has the name that was chosen in "on". [data-shape]
// says what a value is: a list with commas, a number, the name of a secret; a box is yes or no.
import { ask } from "./api.js";
import { refresh } from "./fresh.js";
import { showOnce } from "./once.js";
import { toast } from "./toasts.js";

const SHAPES = {
  list: (value) => value.split(",").map((one) => one.trim()).filter(Boolean),
  secret: (value) => ({ secret: value }),
  number: Number,
  json: JSON.parse,
};

function read(form) {
  const values = {};
  for (const field of form.elements) {
    if (field.type === "checkbox") {
      if (field.name) values[field.name] = field.checked;
      continue;
    }
    const value = field.type === "password" ? field.value : field.value.trim();
    if (!field.name || "names" in field.dataset || !value) continue;
    const name = field.dataset.named ? form.elements[field.dataset.named].value : field.name;
    const shape = SHAPES[field.dataset.shape] ?? (name === "job" && /^[0-9]+$/.test(value) ? Number : String);
    values[name] = shape(value);
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
