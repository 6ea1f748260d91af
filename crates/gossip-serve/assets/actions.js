// Changes: what will happen, the command that does the same, and a confirmation.

import { post } from "./api.js";
import { h, replace } from "./dom.js";

const TEXTS = {
  pause: ["Pause the run?", "Workers release their shards at their next lease renewal and claim no more."],
  resume: ["Resume the run?", "Workers may claim its shards again."],
  cancel: ["Cancel the run?", "Its workers stop at their next lease renewal. A cancelled run cannot be resumed."],
  retry: ["Try failed items again?", "Their shards become claimable. A worker of the run processes them; if none is running, start one."],
  split: ["Split the shard?", "Its lease holder cuts what remains of the range at its next renewal."],
  handoff: ["Hand the shard off?", "Its lease holder offers it to an idle worker at its next renewal. No key is processed twice."],
  release: ["Release the shard?", "Its lease holder gives it back at its next renewal, and any worker may claim it."],
};

let mayChange = false;

export const allow = (isAllowed) => { mayChange = isAllowed; };

export function button(label, action, options = {}) {
  const { danger, small, title } = options;
  const classes = [danger ? "danger" : "", small ? "small" : ""].join(" ").trim();
  return h("button", {
    type: "button",
    class: classes || null,
    disabled: !mayChange,
    title: mayChange ? title : "This server or this token is read-only",
    "data-action": action.action,
    onclick: () => confirm(label, action),
  }, label);
}

async function confirm(label, action) {
  const dialog = document.getElementById("dialog");
  const [title, text] = TEXTS[action.action];
  const status = h("p", { role: "status" });
  const command = h("pre", null, "…");
  const key = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  const run = h("button", { type: "button", class: "danger", id: "confirm" }, label);
  const back = h("button", { type: "button", onclick: () => dialog.close() }, "Back");
  run.addEventListener("click", async () => {
    run.disabled = true;
    replace(status, "…");
    try {
      const done = await post("/api/v1/actions", action, { "Idempotency-Key": key });
      replace(status, done.message);
      run.hidden = true;
      run.disabled = false;
      back.textContent = "Close";
      back.focus();
    } catch (problem) {
      replace(status, problem.message);
      // The key makes a repetition harmless.
      run.disabled = false;
    }
  });
  replace(dialog, h("h2", { id: "dialog-title" }, title), h("p", null, text),
    h("p", { class: "dim" }, "The same on a command line:"), command, status,
    h("div", { class: "buttons" }, back, run));
  dialog.showModal();
  back.focus();
  try {
    const described = await post("/api/v1/actions", { ...action, dry_run: true });
    replace(command, described.command);
  } catch (problem) {
    replace(command, problem.message);
  }
}
