// Shows what only comes when something happens.
import { showOnce } from "./once.js";
import { toast } from "./toasts.js";

const SHOWN = {
  good: () => toast("Job 12 is paused"),
  bad: () => toast({ code: "E_CONFLICT", detail: "the job was changed by somebody else", hint: "read it again" }),
  dialog: () => document.getElementById("sample-dialog").showModal(),
  once: () => showOnce("Make the token", "horae_u_a_sample"),
  palette: async () => (await import("./palette.js")).open(),
};

document.addEventListener("click", (event) => SHOWN[event.target.dataset?.show]?.());
