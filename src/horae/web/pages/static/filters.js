// A form that narrows a list: what is chosen counts at once, and the address has nothing that is empty.

export function narrow(form) {
  form.addEventListener("change", ({ target }) => {
    if (target.type === "checkbox" || target.tagName === "SELECT") form.requestSubmit();
  });
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
  });
  addEventListener("pageshow", () => { for (const field of form.elements) field.disabled = false; });
}
