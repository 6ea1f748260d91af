// The page of a run.

import { get, updates, want } from "./api.js";
import { button } from "./actions.js";
import { describe, drawHeat, drawMap, expand, lanes, legend, speeds, throughput } from "./charts.js";
import { badge, bar, clock, duration, h, number, panel, percent, rate, replace, set, setting, table, update, when } from "./dom.js";

const TABLE_ROWS = 200;

// The pictures of a run, each with its table.
class Pictures {
  constructor(id) {
    this.run = id;
    this.view = null;
    this.history = [];
    this.mode = setting("color", "worker");
    const mode = h("select", { "aria-label": "Colour of the heat map", onchange: () => {
      this.mode = mode.value;
      set("color", mode.value === "worker" ? null : mode.value);
      this.drawHistory();
    } }, ["worker", "status", "rate"].map((it) => h("option", { value: it }, it)));
    mode.value = this.mode;
    this.map = panel("keyspace", "Key space now");
    this.heat = panel("heat", "Key space over time", [h("label", null, "colour ", mode)]);
    this.lanes = panel("workers", "Workers");
    this.speed = panel("throughput", "Throughput");
    this.mapCanvas = h("canvas", { class: "map", tabindex: 0, role: "img" });
    this.heatCanvas = h("canvas", { class: "heat", role: "img" });
    this.tip = h("p", { class: "tip", "aria-live": "polite" }, "Point at the map, or focus it and use the arrow keys.");
    this.position = 0;
    this.mapCanvas.addEventListener("pointermove", (event) => this.point(event.offsetX / this.mapCanvas.clientWidth));
    this.mapCanvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 16, PageUp: -16 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.point(this.position + step / 512);
    });
    const ends = () => h("p", { class: "ends" }, h("span", null, "first key"), h("span", null, "last key"));
    this.mapLegend = h("div");
    replace(this.map.picture, this.mapCanvas, ends(), this.mapLegend, this.tip);
    this.heatEnds = h("p", { class: "ends" });
    this.heatLegend = h("div");
    replace(this.heat.picture, this.heatCanvas, this.heatEnds, this.heatLegend);
    this.heat.node.addEventListener("shown", () => this.drawHistory());
    this.map.node.addEventListener("shown", () => this.drawNow());
    this.laneTable = h("div");
    this.nodes = [this.map.node, this.lanes.node, this.heat.node, this.speed.node];
  }

  point(position) {
    this.position = Math.max(0, Math.min(0.999, position));
    if (this.view) update(this.tip, describe(this.view.cells, this.position, this.view.workers));
  }

  name(worker) {
    return this.view?.workers.find((it) => it.number === worker)?.name ?? this.names.get(worker) ?? `worker ${worker + 1}`;
  }

  names = new Map();

  show(view) {
    this.view = view;
    for (const worker of view.workers) this.names.set(worker.number, worker.name);
    this.drawNow();
  }

  drawNow() {
    const { view } = this;
    if (!view) return;
    const buckets = expand(view.cells);
    const counts = new Map();
    for (const bucket of buckets) counts.set(bucket.state, (counts.get(bucket.state) ?? 0) + 1);
    const words = [...counts].map(([state, count]) => `${Math.round((count / buckets.length) * 100)} % ${state}`);
    this.mapCanvas.setAttribute("aria-label", `Key space: ${words.join(", ")}`);
    // What a test and a style sheet can see of it.
    this.map.node.dataset.states = [...counts.keys()].sort().join(" ");
    drawMap(this.mapCanvas, view.cells);
    update(this.mapLegend, legend(view.cells, view.workers));
    let at = 0;
    const rows = view.cells.map(([count, state, worker, covered]) => {
      const from = at;
      at += count;
      return { from, to: at, state, worker, covered };
    });
    const part = (value) => `${((value / buckets.length) * 100).toFixed(1)} %`;
    update(this.map.rows, table("Key space", [
      ["From", (row) => part(row.from), true], ["To", (row) => part(row.to), true],
      ["State", (row) => badge(row.state)], ["Worker", (row) => (row.worker === null ? "–" : this.name(row.worker))],
      ["Covered", (row) => `${row.covered} %`, true],
    ], rows.slice(0, TABLE_ROWS)), rows.length > TABLE_ROWS ? h("p", { class: "dim" }, `and ${rows.length - TABLE_ROWS} more ranges`) : null);
    this.drawLanes();
  }

  drawLanes() {
    const { view } = this;
    const state = (worker) => {
      if (worker.is_gone) return [badge("gone"), ` leases end in ${duration(worker.stalled_ms)}`];
      if (worker.stalled_ms !== null) return [badge("stalled"), ` leases end in ${duration(worker.stalled_ms)}`];
      return worker.is_slow ? badge("slow") : badge("active");
    };
    const rows = [...view.workers].sort((one, other) => (one.rate ?? 0) - (other.rate ?? 0));
    const fastest = Math.max(...rows.map((worker) => worker.rate ?? 0), 1);
    const now = rows.length === 0
      ? h("p", { class: "dim" }, view.is_over ? "The run is over; no worker holds a shard." : ["No worker holds a shard. Start one: ", h("code", null, `gossip worker ${this.run}`)])
      : table("Workers, slowest first", [
        ["Worker", (worker) => worker.name], ["State", state],
        ["Rate", (worker) => rate(worker.rate), true],
        ["", (worker) => bar((worker.rate ?? 0) / fastest, `Rate of ${worker.name} compared with the fastest`), false, "wide"],
        ["Shards", (worker) => number(worker.shards), true], ["Keys", (worker) => number(worker.keys), true],
        ["", (worker) => h("span", { class: "ask" }, button("Split", { action: "split", run: this.run, shard: worker.shard }, { small: true, title: "Ask it to split its longest shard" }),
          button("Hand off", { action: "handoff", run: this.run, shard: worker.shard }, { small: true, title: "Ask it to hand its longest shard to an idle worker" })), false, "wide"],
      ], rows, (worker) => worker.worker);
    const marks = view.marks.slice().reverse().slice(0, 50);
    update(this.lanes.picture, now, lanes(this.history, view.marks, (worker) => this.name(worker)));
    update(this.lanes.rows, h("h3", null, "Leases that changed hands"),
      marks.length === 0 ? h("p", { class: "dim" }, "None.")
        : table("Leases that changed hands", [
          ["Time", (mark) => clock(mark.at)], ["What", (mark) => mark.kind], ["Shard", (mark) => h("code", null, mark.shard)],
          ["From", (mark) => this.name(mark.from)], ["To", (mark) => this.name(mark.to)],
        ], marks, (mark) => `${mark.at} ${mark.shard}`));
  }

  drawHistory() {
    const columns = this.history;
    this.heatCanvas.setAttribute("aria-label", `Key space over time, ${columns.length} columns; the table has the same`);
    drawHeat(this.heatCanvas, columns, this.mode);
    const text = columns.length ? [clock(columns[0].at), clock(columns.at(-1).at)] : ["", ""];
    update(this.heatEnds, text.map((it) => h("span", null, it)));
    update(this.heatLegend, this.mode === "rate"
      ? h("p", { class: "dim" }, "Keys run from top to bottom. The stronger the colour, the more of the range was done in that time.")
      : [h("p", { class: "dim" }, "Keys run from top to bottom."), legend(columns.flatMap((column) => column.cells), this.mode === "worker" ? [...this.names].map(([number_, name]) => ({ number: number_, name })) : [], this.mode)]);
    const share = (column, state) => {
      const buckets = expand(column.cells);
      return `${Math.round((buckets.filter((bucket) => bucket.state === state).length / buckets.length) * 100)} %`;
    };
    if (this.heat.isTable()) {
      update(this.heat.rows, table("Key space over time", [
        ["Time", (column) => clock(column.at)], ["Keys", (column) => number(column.keys), true],
        ...["done", "leased", "stalled", "waiting", "failed"].map((state) => [state, (column) => share(column, state), true]),
      ], columns.slice(-TABLE_ROWS).reverse()));
    }
    update(this.speed.picture, throughput(columns));
    update(this.speed.rows, table("Throughput", [
      ["Time", (point) => clock(point.at)], ["Rate", (point) => rate(point.value), true],
    ], speeds(columns).slice(-TABLE_ROWS).reverse()));
    if (this.view) this.drawLanes();
  }
}

class Failures {
  constructor(id) {
    this.id = id;
    this.seen = "";
    this.body = h("div");
    this.next = null;
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.load(this.next) }, "More");
    this.title = h("h2", { id: "failures-title" }, "Failures");
    this.all = h("span");
    this.node = h("section", { id: "failures", "aria-labelledby": "failures-title" },
      h("div", { class: "head" }, this.title, h("div", { class: "tools" }, this.all, h("a", { href: "#failures", "aria-label": "Link to Failures" }, "link"))),
      this.body, this.more);
  }

  // Reads again only if the counts have changed.
  show(view) {
    const count = view.shards.parked + view.shards.damaged + view.unread;
    const seen = `${view.shards.parked} ${view.shards.damaged} ${view.unread} ${view.is_over}`;
    update(this.title, `Failures (${number(count)})`);
    this.node.hidden = count === 0;
    if (seen === this.seen) return;
    this.seen = seen;
    update(this.all, view.shards.parked > 0 && !view.is_over ? button("Retry all", { action: "retry", run: this.id }, { small: true }) : null);
    if (count > 0) this.load();
  }

  async load(cursor = null) {
    const query = cursor ? `?cursor=${encodeURIComponent(cursor)}` : "";
    try {
      const page = await get(`/api/v1/runs/${this.id}/failures${query}`);
      const items = page.failures.map((failure) => this.item(failure));
      if (cursor) this.body.append(...items);
      else update(this.body, items);
      this.next = page.next;
      this.more.hidden = !page.next;
    } catch (problem) {
      this.seen = "";
      replace(this.body, h("p", null, problem.message));
    }
  }

  item(failure) {
    const how = failure.exit_code !== null ? `exit ${failure.exit_code}`
      : failure.signal !== null ? `signal ${failure.signal}` : failure.kind === "unread" ? "unread" : failure.reason ?? "failed";
    const facts = [failure.tries ? `${failure.tries} ${failure.tries === 1 ? "try" : "tries"}` : null,
      failure.host ? `on ${failure.host}${failure.pid ? ` pid ${failure.pid}` : ""}` : null].filter(Boolean).join(", ");
    return h("article", { class: "failure", "data-shard": failure.shard ?? "", "data-key": failure.shard ?? failure.item },
      h("div", { class: "head" }, h("b", { class: "mono" }, failure.item), h("span", { class: "badge failed" }, how),
        h("span", { class: "dim" }, facts, failure.at ? [" · ", when(failure.at)] : null),
        failure.shard ? button("Retry", { action: "retry", run: this.id, shard: failure.shard }, { small: true }) : h("span", { class: "dim" }, "passed by the cursor")),
      failure.message && !/^exit status \d+$/.test(failure.message) ? h("p", null, failure.message) : null,
      failure.stderr ? h("pre", { tabindex: 0, "aria-label": "Standard error" }, failure.stderr) : null);
  }
}

const EVENTS_EVERY = 5000;
const EVENTS_SHOWN = 1000;

// What happened to the run and its shards, from the store: also before this server was started.
class Events {
  constructor(id) {
    this.id = id;
    this.rows = new Map();
    this.next = null;
    this.readAt = 0;
    this.timer = 0;
    this.body = h("div");
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.load(this.next) }, "Earlier");
    this.node = h("section", { id: "events", "aria-labelledby": "events-title" },
      h("div", { class: "head" }, h("h2", { id: "events-title" }, "Events"),
        h("div", { class: "tools" }, h("a", { href: "#events", "aria-label": "Link to Events" }, "link"))),
      this.body, this.more);
  }

  // Reads again some time after each update, and once after the last.
  show(view) {
    if (this.timer) return;
    const isLast = view.is_over && this.readAt > 0;
    const wait = isLast ? EVENTS_EVERY : Math.max(0, this.readAt + EVENTS_EVERY - Date.now());
    this.timer = setTimeout(() => {
      this.timer = 0;
      if (this.node.isConnected && !document.hidden) this.load();
    }, wait);
  }

  async load(cursor = null) {
    this.readAt = Date.now();
    const query = cursor ? `&cursor=${encodeURIComponent(cursor)}` : "";
    try {
      const page = await get(`/api/v1/runs/${this.id}/events?limit=100${query}`);
      // Without a common event there may be others in between.
      if (!cursor && !page.events.some((it) => this.rows.has(it.id))) {
        this.rows.clear();
        this.next = page.next;
      }
      if (cursor) this.next = page.next;
      for (const event of page.events) this.rows.set(event.id, event);
      this.draw(page);
    } catch (problem) {
      if (this.rows.size === 0) update(this.body, h("p", null, problem.message));
    }
  }

  draw(page) {
    // The ids are in the order of time.
    const rows = [...this.rows.values()].sort((one, other) => (one.id < other.id ? 1 : -1));
    const name = (known, id) => known ?? (id ? `worker ${id.slice(8)}` : "–");
    const what = (event) => (event.previous_worker
      ? `took over from ${name(event.previous_name, event.previous_worker)}, ${event.text.replace("acquired, ", "")}` : event.text);
    const missing = [page.lost > 0 ? `At least ${number(page.lost)} earlier events are no longer stored.` : null,
      page.is_complete ? null : "There are more events than are shown here: gossip events has all."].filter(Boolean).join(" ");
    this.more.hidden = !this.next || rows.length >= EVENTS_SHOWN;
    update(this.body, rows.length === 0 ? h("p", { class: "dim" }, "None.") : table("Events", [
      ["Time", (event) => h("time", { datetime: new Date(event.at).toISOString(), title: new Date(event.at).toISOString() }, clock(event.at))],
      ["What", what], ["Shard", (event) => (event.shard ? h("code", null, event.shard) : "–")],
      ["Worker", (event) => name(event.name, event.worker)],
    ], rows.slice(0, EVENTS_SHOWN), (event) => event.id), missing ? h("p", { class: "dim" }, missing) : null);
  }
}

function attention(view) {
  const lines = [];
  const failed = view.shards.parked + view.shards.damaged;
  if (failed > 0) lines.push(h("li", null, h("a", { href: "#failures" }, `${number(failed)} ${failed === 1 ? "item" : "items"} failed`)));
  if (view.unread > 0) lines.push(h("li", null, `${number(view.unread)} could not be read`));
  for (const worker of view.workers) {
    if (worker.is_gone) lines.push(h("li", null, `${worker.name} is gone; others get its ${number(worker.shards)} shards in ${duration(worker.stalled_ms)}`));
    else if (worker.stalled_ms !== null) lines.push(h("li", null, `${worker.name} does not renew its leases; they end in ${duration(worker.stalled_ms)}`));
    else if (worker.is_slow) lines.push(h("li", null, `${worker.name} is slow: ${rate(worker.rate)}`));
  }
  if (view.status === "active" && view.workers.length === 0 && view.shards.waiting > 0) {
    lines.push(h("li", null, "No worker holds a shard: ", h("code", null, `gossip worker ${view.run}`)));
  }
  if (lines.length === 0) return null;
  return h("section", { class: failed > 0 ? "attention" : "attention warn", "aria-label": "What needs attention" }, h("ul", null, lines.slice(0, 8)));
}

function facts(view) {
  const total = view.total === null ? null : ` of ${view.total_kind === "estimated" ? "about " : ""}${number(view.total)}`;
  const entries = [
    ["Done", percent(view.fraction) ?? "–"],
    ["Keys", [number(view.keys), h("small", null, total)]],
    ["Rate", rate(view.rate)],
    ["Left", view.is_over ? "–" : duration(view.left_ms)],
    ["Failed", number(view.shards.parked + view.shards.damaged)],
    ["Unread", number(view.unread)],
    ["Workers", number(view.workers.length)],
    ["Shards", [number(view.shards.done), h("small", null, ` done, ${number(view.shards.leased)} leased, ${number(view.shards.waiting)} waiting`)]],
  ];
  return h("dl", { class: "facts" }, entries.map(([name, value]) => h("div", { class: name === "Shards" ? "wide2" : null }, h("dt", null, name), h("dd", null, value))));
}

export function runPage(main, on, id) {
  want(id);
  const [title, top, attentionBox, buttons, certificate] = [h("div"), h("div"), h("div"), h("div", { class: "buttons" }), h("p", { role: "status" })];
  const [pictures, failures, events] = [new Pictures(id), new Failures(id), new Events(id)];
  let drawnButtons = "";
  let isBuilt = false;
  replace(main, title, h("p", { class: "dim" }, "Reading the run…"));

  async function verify() {
    replace(certificate, "Writing and verifying the certificate…");
    try {
      const found = await get(`/api/v1/runs/${id}/verification`);
      replace(certificate, h("strong", null, found.summary), " – the same: ", h("code", null, found.command));
    } catch (problem) {
      replace(certificate, problem.message);
    }
  }

  function drawButtons(view) {
    const state = `${view.status} ${view.is_over}`;
    if (state === drawnButtons) return;
    drawnButtons = state;
    const run = { run: id };
    update(buttons,
      view.is_over ? null : view.status === "paused" ? button("Resume", { action: "resume", ...run }) : button("Pause", { action: "pause", ...run }),
      view.is_over ? null : button("Cancel", { action: "cancel", ...run }, { danger: true }),
      view.is_over || view.status === "incomplete" ? h("button", { type: "button", id: "verify", onclick: verify }, "Verify the certificate") : null,
      view.is_over || view.status === "incomplete" ? h("a", { href: `/api/v1/runs/${id}/certificate`, download: "" }, "Download the certificate") : null);
  }

  function show(view) {
    document.title = `${percent(view.fraction) ?? view.status} · ${view.name ?? id.slice(0, 8)} · gossip`;
    if (!isBuilt) {
      isBuilt = true;
      replace(main, title, top, attentionBox, buttons, certificate, pictures.nodes[0], pictures.nodes[1], failures.node, pictures.nodes.slice(2), events.node);
      if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
    }
    update(title, h("h1", null, view.name ?? `Run ${id}`, " ", badge(view.status)),
      h("p", { class: "mono dim" }, `${view.source ?? ""}${view.command ? ` -- ${view.command}` : ""}`));
    update(top, bar(view.fraction, "Done"), facts(view));
    update(attentionBox, attention(view));
    drawButtons(view);
    pictures.show(view);
    failures.show(view);
    events.show(view);
    // The newest column, as the server makes one.
    const last = pictures.history.at(-1);
    if (!last || view.at - last.at >= interval) {
      pictures.history.push({ at: view.at, keys: view.keys, cells: view.cells, workers: view.workers.map((worker) => [worker.number, worker.shards, worker.keys]) });
      if (pictures.history.length > 256) loadHistory();
      else pictures.drawHistory();
    }
  }

  let interval = 750;

  async function loadHistory() {
    try {
      const history = await get(`/api/v1/runs/${id}/history`);
      pictures.history = history.columns;
      interval = history.interval_ms * 0.75;
      pictures.drawHistory();
    } catch {
      // The next update has a column.
    }
  }

  const message = h("p", { role: "status" });
  let isLoading = false;
  let isStale = false;
  // Views that came by the stream.
  let streamed = 0;

  async function load() {
    // The response in flight may be older than the event that asks for this read.
    if (isLoading) {
      isStale = true;
      return;
    }
    isLoading = true;
    const before = streamed;
    try {
      const view = await get(`/api/v1/runs/${id}`);
      await loadHistory();
      // A view that came meanwhile may be newer, and the last one of a finished run.
      if (streamed === before) show(view);
    } catch (problem) {
      const wait = { not_read_yet: 500, run_unreadable: 5000 }[problem.code];
      // The page may have been left in the meantime.
      if (wait) setTimeout(() => { if (title.isConnected || message.isConnected) load(); }, wait);
      if (problem.code === "run_unreadable") isBuilt = false;
      if (!isBuilt) {
        replace(message, problem.message);
        replace(main, h("h1", null, `Run ${id} `, problem.code === "run_unreadable" ? badge("unreadable") : null), message);
      }
    } finally {
      isLoading = false;
      if (isStale) {
        isStale = false;
        load();
      }
    }
  }

  on(updates, "run", ({ detail }) => {
    if (detail.run !== id) return;
    streamed += 1;
    show(detail);
  });
  on(updates, "runs", ({ detail }) => { if (detail.run === id && detail.status === "unreadable") load(); });
  on(updates, "gone", ({ detail }) => { if (detail.run === id) replace(main, h("h1", null, `Run ${id}`), h("p", null, "The run was deleted.")); });
  on(updates, "resync", load);
  on(matchMedia("(prefers-color-scheme: dark)"), "change", () => { pictures.drawNow(); pictures.drawHistory(); });
  load();
}
