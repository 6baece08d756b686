// Shows what is shown this once, such as a token, until somebody has taken it and says so.
import { make } from "./dom.js";

export function showOnce(title, text) {
  const copy = make("button", { type: "button", textContent: "Copy" });
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  });
  const box = make("dialog", { className: "once" },
    make("h2", { textContent: title }), make("p", { textContent: "It is shown this once: copy it now." }),
    make("pre", { tabIndex: 0, textContent: text }),
    make("form", { method: "dialog", className: "row" }, copy, make("button", { className: "main", textContent: "I have it" })));
  box.setAttribute("aria-label", title);
  document.body.append(box);
  box.showModal();
  return new Promise((resolve) => box.addEventListener("close", () => {
    box.remove(); // with the secret that it showed
    resolve();
  }, { once: true }));
}
