// Elements. Text goes in as text, never as markup.
import { because, MARKS, away, clock, plain } from "./words.js";

export const byId = (id) => document.getElementById(id);

export function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function badge(state, reason = "") {
  const mark = make("i", { ariaHidden: "true", textContent: MARKS[state] ?? "·" });
  const shown = make("span", { className: `state ${state}` }, mark, plain(state));
  return reason ? [shown, " ", make("span", { className: "why", textContent: because(reason) })] : [shown];
}

export function when(moment) {
  if (!moment) return make("span", { className: "none", textContent: "–" });
  const made = make("time", { dateTime: moment, title: clock(moment), textContent: away(moment) });
  made.dataset.away = "";
  return made;
}

// Waits until nothing was asked for a while: what is typed is looked for once.
export function later(act, ms = 150) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...args), ms);
  };
}

// What can be scrolled must be reached by keyboard.
export function reachScrolled() {
  for (const place of document.querySelectorAll(".scroll")) {
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
    else place.removeAttribute("tabindex");
  }
}
