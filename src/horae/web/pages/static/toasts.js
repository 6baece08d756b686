// Says what has happened, in a corner. What went wrong stays until it is closed, with its code and what to do.
import { byId, make } from "./dom.js";

const STAYS_MS = 6000;
const MOST = 4;

export function toast(what) {
  const isBad = typeof what !== "string";
  const said = isBad
    ? [make("b", { textContent: what.detail ?? what.message ?? "that did not work" }),
       what.hint ? make("small", { textContent: what.hint }) : null,
       what.code ? make("small", {}, make("a", { href: `/docs#${what.code}`, textContent: what.code })) : null]
    : [what];
  const close = make("button", { type: "button", className: "plain", ariaLabel: "Close", textContent: "✕" });
  const shown = make("div", { className: isBad ? "toast bad" : "toast" }, make("div", {}, ...said.filter(Boolean)), close);
  close.addEventListener("click", () => shown.remove());
  byId("toasts").append(shown);
  while (byId("toasts").children.length > MOST) byId("toasts").firstChild.remove();
  if (!isBad) setTimeout(() => shown.remove(), STAYS_MS);
}
