// Asks before something is done. Answers whether it is wanted.
import { make } from "./dom.js";

export function sure(title, text, verb, isDangerous = false) {
  const yes = make("button", { value: "yes", className: isDangerous ? "danger" : "main", textContent: verb });
  const box = make("dialog", { className: "sure" },
    make("h2", { textContent: title }), make("p", { textContent: text }),
    make("form", { method: "dialog", className: "row" }, make("button", { value: "", textContent: "Leave it" }), yes));
  box.setAttribute("aria-label", title);
  document.body.append(box);
  box.showModal();
  return new Promise((resolve) => box.addEventListener("close", () => {
    resolve(box.returnValue === "yes");
    box.remove();
  }, { once: true }));
}
