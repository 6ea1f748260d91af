// The page: session, addresses, and the banner about connection and store.

import { allow } from "./actions.js";
import { get, listen, session, signIn, updates } from "./api.js";
import { h, replace } from "./dom.js";
import { runsPage, storePage, workersPage } from "./lists.js";
import { runPage } from "./run.js";

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const trouble = { connection: null, store: null };
let undo = [];

function say(kind, text) {
  if (trouble[kind] === text) return;
  trouble[kind] = text;
  replace(banner, [trouble.connection, trouble.store].filter(Boolean).join(" "));
}

// Listens until the next page.
function on(target, event, listener) {
  target.addEventListener(event, listener);
  undo.push(() => target.removeEventListener(event, listener));
}

function route() {
  for (const stop of undo) stop();
  undo = [];
  const path = location.pathname;
  const run = path.match(/^\/runs\/([0-9a-f]{16})$/);
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = path.startsWith(link.pathname) || (path === "/" && link.pathname === "/runs");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (run) runPage(main, on, run[1]);
  else if (path === "/workers") workersPage(main, on);
  else if (path === "/store") storePage(main, on);
  else runsPage(main, on);
}

function go(event) {
  const link = event.target.closest?.("a");
  const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
  if (!link || !isPlain || link.origin !== location.origin || link.hasAttribute("download")) return;
  if (link.pathname.startsWith("/api/") || (link.pathname === location.pathname && link.hash)) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  route();
  scrollTo(0, 0);
  main.focus();
}

function askForToken(message) {
  const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const status = h("p", { role: "status" }, message);
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    try {
      await signIn(input.value);
      location.reload();
    } catch (problem) {
      replace(status, problem.message);
    }
  } }, h("label", { for: "token" }, "Token "), input, " ", h("button", { type: "submit" }, "Sign in"));
  replace(main, h("h1", null, "A token is needed"),
    h("p", null, "Open the address that ", h("code", null, "gossip serve"), " has printed, or enter a token."), form, status);
  input.focus();
}

let isAsking = false;

async function checkSession() {
  try {
    await get("/api/v1/session");
  } catch (problem) {
    if (problem.status === 401 && !isAsking) {
      isAsking = true;
      askForToken("The server was started again with another token.");
    }
  }
}

async function start() {
  let who;
  try {
    who = await session();
  } catch (problem) {
    if (problem.status === 401) askForToken("");
    else replace(main, h("h1", null, "gossip"), h("p", null, problem.message));
    return;
  }
  const rights = who.may_change ? "" : ", read-only";
  replace(document.getElementById("session"), `tenant ${who.tenant}${rights} · ${who.version}`);
  allow(who.may_change);
  updates.addEventListener("connection", ({ detail }) => {
    say("connection", detail ? null : "The connection to the server is lost; trying again. The page may be out of date.");
    if (!detail) checkSession();
  });
  const store = ({ detail }) => say("store", detail.is_readable ? null : `The store cannot be read: ${detail.error}. Trying again; the page may be out of date.`);
  updates.addEventListener("store", store);
  get("/api/v1/store").then((detail) => { if (detail.last_read || detail.error) store({ detail }); }).catch(() => {});
  document.addEventListener("click", go);
  addEventListener("popstate", route);
  if (location.pathname === "/") history.replaceState(null, "", "/runs");
  route();
  listen();
}

start();
