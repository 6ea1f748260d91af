// The pages Runs, Workers and Store.

import { get, updates, want } from "./api.js";
import { badge, bar, duration, h, number, percent, rate, replace, set, setting, table, update, when } from "./dom.js";

const STATUSES = ["active", "paused", "incomplete", "done", "failed", "cancelled", "unreadable"];

export const runLink = (run) =>
  h("a", { href: `/runs/${run.run}` }, run.name ?? run.run.slice(0, 8));

function progress(run) {
  if (run.status === "unreadable") return h("span", { class: "dim" }, "its record is damaged");
  if (!run.is_read) {
    return h("span", { class: "dim" },
      run.rows_read === null ? "not read yet" : `reading: ${number(run.rows_read)} values`);
  }
  const text = percent(run.fraction);
  const kind = run.total_kind === "estimated" ? "~" : "";
  return [text ? bar(run.fraction, "Done") : null,
    h("small", null, text ? `${kind}${text}` : `${number(run.keys)} keys`)];
}

const failed = (run) => (run.shards ? run.shards.parked + run.shards.damaged : null);

export function runsPage(main, on) {
  want(null);
  document.title = "Runs · gossip";
  let runs = new Map();
  let isComplete = false;
  let next = null;
  const body = h("div");
  const status = h("select", { id: "status", onchange: () => { set("status", status.value); load(); } },
    h("option", { value: "" }, "all"), STATUSES.map((it) => h("option", { value: it }, it)));
  status.value = setting("status", "");
  const text = h("input", { id: "text", type: "search", value: setting("text", ""), oninput: () => { set("text", text.value); load(); } });
  const more = h("button", { type: "button", hidden: true, onclick: () => load(next) }, "More");
  replace(main, h("h1", null, "Runs"),
    h("div", { class: "filters" }, h("label", { for: "status" }, "Status "), status,
      h("label", { for: "text" }, "Contains "), text),
    h("section", { "aria-label": "Runs" }, body), h("div", { class: "buttons" }, more));

  const isWanted = (run) => (!status.value || run.status === status.value)
    && (!text.value || [run.run, run.name, run.source, run.command].some((it) => it?.includes(text.value)));

  function draw() {
    const rows = [...runs.values()].filter(isWanted)
      .sort((one, other) => other.created_at - one.created_at || (one.run < other.run ? -1 : 1));
    more.hidden = !next;
    if (rows.length === 0) {
      replace(body, h("p", { class: "dim" }, !isComplete ? "Reading the store…"
        : runs.size || status.value || text.value ? "No run matches."
          : ["No run yet. Start one: ", h("code", null, "gossip exec SOURCE -- COMMAND {}")]));
      return;
    }
    const isAtRest = rows.every((run) => run.is_over);
    update(body, table("Runs", [
      ["Run", (run) => runLink(run)],
      ["Status", (run) => badge(run.status)],
      ["Progress", progress],
      ["Keys", (run) => number(run.keys), true, "wide"],
      ...(isAtRest ? [] : [["Rate", (run) => rate(run.rate), true],
        ["Left", (run) => (run.is_over ? "–" : duration(run.left_ms)), true]]),
      ["Failed", (run) => number(failed(run)), true],
      ["Unread", (run) => number(run.unread), true, "wide"],
      ["Workers", (run) => number(run.workers), true],
      ["Created", (run) => when(run.created_at), false, "wide"],
      ["Source and command", (run) => h("code", null, `${run.source ?? ""} ${run.command ? `-- ${run.command}` : ""}`), false, "wide"],
    ], rows, (run) => run.run));
  }

  // The updates that come while a page of runs is read, for each read.
  const reads = new Set();

  async function load(cursor = null) {
    const late = new Map();
    reads.add(late);
    const query = new URLSearchParams();
    if (status.value) query.set("status", status.value);
    if (text.value) query.set("text", text.value);
    if (cursor) query.set("cursor", cursor);
    try {
      const page = await get(`/api/v1/runs?${query}`);
      if (!cursor) runs = new Map();
      for (const run of page.runs) runs.set(run.run, run);
      // They may be newer than the page.
      for (const [id, run] of late) change(id, run);
      [isComplete, next] = [page.is_complete, page.next];
      draw();
      if (!isComplete) setTimeout(load, 1000);
    } catch (problem) {
      if (runs.size === 0) replace(body, h("p", null, problem.message));
    } finally {
      reads.delete(late);
    }
  }

  // Replaces a run, or removes one that was deleted.
  function change(id, run) {
    if (run) runs.set(id, run);
    else runs.delete(id);
  }

  function apply(id, run) {
    for (const late of reads) late.set(id, run);
    change(id, run);
    draw();
  }

  on(updates, "runs", ({ detail }) => apply(detail.run, detail));
  on(updates, "gone", ({ detail }) => apply(detail.run, null));
  on(updates, "resync", () => load());
  load();
}

// Draws a list now and with each of its updates.
function follow(on, name, body, draw) {
  let streamed = 0;
  const load = async () => {
    const before = streamed;
    try {
      const list = await get(`/api/v1/${name}`);
      // One that came by the stream meanwhile may be newer.
      if (streamed === before) draw(list);
    } catch (problem) {
      replace(body, h("p", null, problem.message));
    }
  };
  on(updates, name, ({ detail }) => {
    streamed += 1;
    draw(detail);
  });
  on(updates, "resync", load);
  load();
}

export function workersPage(main, on) {
  want(null);
  document.title = "Workers · gossip";
  const body = h("section", { "aria-label": "Workers" });
  replace(main, h("h1", null, "Workers"),
    h("p", { class: "dim" }, "Registered workers, and those that hold a shard."), body);
  const draw = ({ workers }) => {
    if (workers.length === 0) {
      replace(body, h("p", { class: "dim" }, "No worker. Start one: ", h("code", null, "gossip worker RUN")));
      return;
    }
    const slow = (worker) => (worker.is_slow ? [" ", badge("slow")] : null);
    update(body, table("Workers", [
      ["Worker", (worker) => h("code", null, worker.worker)],
      ["Host", (worker) => worker.host ?? "–"],
      ["Pid", (worker) => worker.pid ?? "–", true],
      ["State", (worker) => [badge(worker.state), slow(worker)]],
      ["Shards", (worker) => number(worker.shards), true],
      ["Rate", (worker) => rate(worker.rate), true],
      ["Jobs", (worker) => number(worker.jobs), true, "wide"],
      ["Run", (worker) => (worker.run ? h("a", { href: `/runs/${worker.run}` }, worker.run.slice(0, 8)) : "–")],
      ["Version", (worker) => worker.version ?? "–", false, "wide"],
      ["Seen", (worker) => when(worker.last_seen), false, "wide"],
    ], workers, (worker) => worker.worker));
  };
  follow(on, "workers", body, draw);
}

export function storePage(main, on) {
  want(null);
  document.title = "Store · gossip";
  const body = h("section", { "aria-label": "Store" });
  replace(main, h("h1", null, "Store"), body);
  const micros = (value) => (value >= 1000 ? `${Math.round(value / 100) / 10} ms` : `${value} µs`);
  const draw = (store) => {
    const facts = [
      ["State", h("span", { class: `badge ${store.is_readable ? "done" : "unreadable"}` }, store.is_readable ? "readable" : "unreadable")],
      ["Place", h("span", { class: "mono" }, store.place)],
      ["Format", number(store.format)],
      ["Runs", number(store.runs)],
      ["Unfinished", number(store.runs_unfinished)],
      ["Requests per second", [`${store.requests_per_second}`, " ", h("small", null, "at most 20")]],
      ["Latency, median", micros(store.latency_median_us)],
      ["Latency, 99 %", micros(store.latency_p99_us)],
      ["Requests", number(store.requests)],
      ["Failed requests", number(store.errors)],
      ["Last read", when(store.last_read)],
    ];
    update(body, store.error ? h("p", null, store.error) : null,
      store.warnings.length > 0 ? h("section", { class: "attention warn", "aria-label": "Warnings" }, h("ul", null, store.warnings.map((it) => h("li", null, it)))) : null,
      h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", { class: name === "Place" ? "wide2" : null }, h("dt", null, name), h("dd", null, value)))));
  };
  follow(on, "store", body, draw);
}

