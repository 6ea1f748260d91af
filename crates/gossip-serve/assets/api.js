// Requests, the session, and the one stream of updates that all tabs of a browser share.

export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ? `${body.title}: ${body.detail}` : body?.title ?? `status ${status}`);
    this.status = status;
    this.code = body?.code ?? "unknown";
  }
}

async function request(path, options) {
  let reply;
  try {
    reply = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Problem(0, { title: "The server cannot be reached", code: "offline" });
  }
  const kind = reply.headers.get("content-type") ?? "";
  const body = kind.includes("json") ? await reply.json().catch(() => null) : await reply.text();
  if (!reply.ok) throw new Problem(reply.status, body);
  return body;
}

export const get = (path) => request(path);

export const post = (path, body, headers = {}) =>
  request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
  });

export const signIn = (token) => post("/api/v1/session", { token });

// The token of the printed address is traded for a cookie and removed from the address.
export async function session() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    history.replaceState(null, "", location.pathname + location.search);
    await signIn(token);
  }
  return get("/api/v1/session");
}

// Updates: "hello", "runs", "run", "gone", "workers", "store", "resync", "connection".
export const updates = new EventTarget();

const emit = (event, data) => updates.dispatchEvent(new CustomEvent(event, { detail: data }));

const EVENTS = ["hello", "runs", "run", "gone", "workers", "store", "resync"];
const RETRY = [2000, 10000];
const WANT_EVERY = 5000;
const WANT_FOR = 12000;

const tab = crypto.randomUUID?.() ?? String(Math.random());
const channel = new BroadcastChannel(`gossip-${location.port}`);
let ownRun = null;
let wants = new Map();
let source = null;
let sourceRuns = "";
let lastId = "";
let retryTimer = 0;
let release = null;
let pending = null;

const wanted = () => [...new Set([...wants.values()].map((want) => want.run).filter(Boolean))].sort().slice(0, 16).join(",");

// Says which run this tab shows.
export function want(run) {
  ownRun = run;
  tellWant();
}

function tellWant() {
  if (document.hidden) return;
  const message = { kind: "want", tab, run: ownRun };
  channel.postMessage(message);
  receive(message);
}

function receive(message) {
  switch (message.kind) {
    case "want":
      wants.set(message.tab, { run: message.run, at: Date.now() });
      refresh();
      break;
    case "bye":
      wants.delete(message.tab);
      refresh();
      break;
    case "event":
      if (message.id) lastId = message.id;
      emit(message.event, message.data);
      break;
  }
}

channel.addEventListener("message", ({ data }) => receive(data));

function share(event, data, id) {
  const message = { kind: "event", event, data, id };
  channel.postMessage(message);
  receive(message);
}

// Opens the stream again if the runs that the tabs show have changed. Only the tab with the lock.
function refresh() {
  if (!release) return;
  for (const [other, want] of wants) {
    if (Date.now() - want.at > WANT_FOR) wants.delete(other);
  }
  const runs = wanted();
  if (source && runs === sourceRuns) return;
  open(runs);
}

function open(runs) {
  clearTimeout(retryTimer);
  source?.close();
  sourceRuns = runs;
  const query = new URLSearchParams();
  if (runs) query.set("run", runs);
  // A new EventSource sends no header.
  if (lastId) query.set("last_event_id", lastId);
  const own = new EventSource(`/api/v1/stream?${query}`);
  source = own;
  // Pages are read before the stream is open, and nothing is repeated to a new one.
  let isBehind = !lastId;
  for (const event of EVENTS) {
    own.addEventListener(event, ({ data, lastEventId }) => {
      if (event === "hello" || event === "resync") share("connection", true);
      share(event, JSON.parse(data), lastEventId);
      if (isBehind) share("resync", {});
      isBehind = false;
    });
  }
  own.addEventListener("error", () => {
    if (source !== own) return;
    share("connection", false);
    // The browser tries again, except after an answer that is no stream.
    if (own.readyState === EventSource.CLOSED) {
      const wait = RETRY[0] + Math.random() * (RETRY[1] - RETRY[0]);
      retryTimer = setTimeout(() => open(wanted()), wait);
    }
  });
}

function close() {
  clearTimeout(retryTimer);
  source?.close();
  source = null;
}

// On HTTP/1.1 a browser has six connections for a server: with a stream for each tab the seventh
// would hang. The tab with the lock has the stream; a hidden tab gives the lock back.
function lead() {
  if (release || pending || document.hidden) return;
  const hold = () => new Promise((resolve) => {
    release = () => {
      release = null;
      close();
      resolve();
    };
    refresh();
  });
  if (!navigator.locks) {
    hold();
    return;
  }
  pending = new AbortController();
  navigator.locks
    .request(`gossip-${location.port}`, { signal: pending.signal }, () => {
      pending = null;
      return document.hidden ? null : hold();
    })
    .catch(() => {})
    .finally(() => { pending = null; });
}

function leave() {
  channel.postMessage({ kind: "bye", tab });
  wants.delete(tab);
  pending?.abort();
  release?.();
}

export function listen() {
  const onVisibility = () => {
    if (document.hidden) leave();
    else {
      tellWant();
      lead();
      // The updates that were missed while the tab was hidden.
      emit("resync", {});
    }
  };
  document.addEventListener("visibilitychange", onVisibility);
  addEventListener("pagehide", leave);
  setInterval(() => { tellWant(); lead(); }, WANT_EVERY);
  tellWant();
  lead();
}
