// Shows what only comes when something happens.
import { toast } from "./toasts.js";

const SHOWN = {
  good: () => toast("Job 12 is paused"),
  bad: () => toast({ code: "E_CONFLICT", detail: "the job was changed by somebody else", hint: "read it again" }),
  dialog: () => document.getElementById("sample-dialog").showModal(),
};

document.addEventListener("click", (event) => SHOWN[event.target.dataset?.show]?.());
