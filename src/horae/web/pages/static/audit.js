// Verifies the chain of the audit log, some rows at a time, and says what was found.
import { get } from "./api.js";
import { byId, make } from "./dom.js";
import { narrow } from "./filters.js";
import { count } from "./words.js";

const MOST = 20; // faults that are shown

function say(kind, title, ...more) {
  byId("verdict").replaceChildren(make("p", { className: kind }, make("b", { textContent: title })), ...more);
}

function show(checked, faults, { first, head }) {
  const rows = `${count(checked)} ${checked === 1 ? "row" : "rows"} from ${count(first)} on`;
  const kept = make("p", {}, "Head: ", make("code", { textContent: head }), ". Write it down elsewhere: with it, also rows that were cut off at the end are missed.");
  if (!faults.length) return say("warning good", `${rows}: each is as it was sealed.`, kept);
  const list = make("ul", {}, ...faults.slice(0, MOST).map((one) => make("li", { textContent: one.message })));
  say("warning bad", `${rows}: ${count(faults.length)} ${faults.length === 1 ? "place is" : "places are"} not as sealed.`, list, kept);
}

async function verify(head) {
  const asked = new URLSearchParams(head ? { head } : {});
  const faults = [];
  for (let checked = 0; ;) {
    const found = await get(`/v1/audit/verify?${asked}`);
    checked += found.checked;
    faults.push(...found.faults);
    if (!found.cursor) return show(checked, faults, found);
    say("", `${count(checked)} rows…`);
    asked.set("cursor", found.cursor);
  }
}

byId("verify-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  try {
    await verify(event.target.elements.head.value.trim());
  } catch (problem) {
    say("warning bad", problem.detail, make("p", { textContent: problem.hint ?? "" }));
  }
  button.disabled = false;
});
narrow(byId("filters"));
