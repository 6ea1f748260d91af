// Elements and numbers. Text from the store is only ever set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

// The listeners of an element by their events, so that an update can exchange them.
const listeners = new WeakMap();

function listen(node, event, listener) {
  if (!listeners.has(node)) listeners.set(node, new Map());
  const known = listeners.get(node);
  // An event that had a listener before has its dispatcher.
  if (!known.has(event)) node.addEventListener(event, (it) => known.get(event)?.(it));
  known.set(event, listener);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) listen(node, name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const present = (children) => children.flat(Infinity).filter((child) => child || child === 0);

export const replace = (node, ...children) => node.replaceChildren(...present(children));

// As `replace`, but elements that are there already are changed and stay: they keep the focus, the
// selection and a click that has begun. An element is that of the same tag and `data-key`, or
// otherwise the next of its tag. The given elements are copied from, so a caller must not keep them.
export const update = (node, ...children) => reconcile(node,
  present(children).map((child) => (child instanceof Node ? child : document.createTextNode(child))));

const keyOf = (node) => node.dataset?.key ?? "";

const isHeld = (node) => node.nodeType === Node.ELEMENT_NODE && node.matches(":focus-within, :active");

function reconcile(parent, wanted) {
  const free = [...parent.childNodes];
  const nodes = wanted.map((next) => {
    const index = free.findIndex((old) => old.nodeName === next.nodeName && keyOf(old) === keyOf(next));
    if (index < 0) return next;
    const [old] = free.splice(index, 1);
    become(old, next);
    return old;
  });
  for (const old of free) old.remove();
  let at = parent.firstChild;
  for (const node of nodes) {
    // A node that is moved loses the focus and the click, so the others move around it.
    while (at && at !== node && node.parentNode === parent && isHeld(node)) {
      const other = at;
      at = at.nextSibling;
      other.remove();
    }
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

// Gives a node the content of another of its kind.
function become(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  // The style only through the object model, which the content security policy allows.
  const names = (node) => node.getAttributeNames().filter((name) => name !== "style");
  for (const name of names(old)) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const name of names(next)) {
    if (old.getAttribute(name) !== next.getAttribute(name)) old.setAttribute(name, next.getAttribute(name));
  }
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  for (const event of listeners.get(old)?.keys() ?? []) listen(old, event, null);
  for (const [event, listener] of listeners.get(next) ?? []) listen(old, event, listener);
  reconcile(old, [...next.childNodes]);
}

export const color = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const workerColor = (number) => color(`--w${number % 6}`);

const plain = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : plain.format(value));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${short.format(value)}/s`;
  return `${plain.format(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10)}/s`;
}

export function percent(fraction) {
  if (fraction === null || fraction === undefined) return null;
  return `${Math.floor(fraction * 1000) / 10} %`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = Math.round(ms / 1000);
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 360) / 10} h`;
  return `${Math.round(seconds / 8640) / 10} d`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function when(ms) {
  if (ms === null || ms === undefined) return "–";
  const date = new Date(ms).toISOString();
  const ago = `${duration(Date.now() - ms)} ago`;
  return h("time", { datetime: date, title: date, "data-at": ms }, ago);
}

// Ages grow without an update of what they belong to.
setInterval(() => {
  for (const time of document.querySelectorAll("time[data-at]")) {
    time.textContent = `${duration(Date.now() - Number(time.dataset.at))} ago`;
  }
}, 5000);

export const badge = (word) => h("span", { class: `badge ${word}` }, word);

export function bar(fraction, label) {
  const inner = h("span");
  // Through the object model, which the content security policy allows.
  inner.style.width = `${Math.max(0, Math.min(1, fraction ?? 0)) * 100}%`;
  return h("div", { class: "bar", role: "progressbar", "aria-label": label,
    "aria-valuemin": 0, "aria-valuemax": 100,
    "aria-valuenow": Math.floor((fraction ?? 0) * 100) }, inner);
}

// A table; a column is [title, cell of a row, whether it is a number, class]. With the key of a row,
// an update keeps the row's elements.
export function table(caption, columns, rows, key = () => null) {
  const kind = ([, , isNumber, extra]) => [isNumber ? "n" : "", extra ?? ""].join(" ").trim() || null;
  const head = columns.map((column) => h("th", { scope: "col", class: kind(column) }, column[0]));
  const body = rows.map((row) =>
    h("tr", { "data-key": key(row) }, columns.map((column) => h("td", { class: kind(column) }, column[1](row)))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { "aria-label": caption }, h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

// The settings of a view live in its address, so that a link shows the same.
export const setting = (name, otherwise) =>
  new URLSearchParams(location.search).get(name) ?? otherwise;

export function set(name, value) {
  const url = new URL(location.href);
  if (value === null || value === "") url.searchParams.delete(name);
  else url.searchParams.set(name, value);
  history.replaceState(null, "", url);
}

// A section with a picture, the same as a table, and a link to it.
export function panel(id, title, tools = []) {
  const picture = h("div");
  const rows = h("div", { hidden: true });
  const key = `${id}.table`;
  const toggle = h("input", { type: "checkbox", onchange: () => show(toggle.checked, true) });
  const show = (isTable, isChosen) => {
    picture.hidden = isTable;
    rows.hidden = !isTable;
    toggle.checked = isTable;
    if (isChosen) set(key, isTable ? "1" : null);
    node.dispatchEvent(new Event("shown"));
  };
  const link = h("a", { href: `#${id}`, "aria-label": `Link to ${title}` }, "link");
  const node = h("section", { id, "aria-labelledby": `${id}-title` },
    h("div", { class: "head" }, h("h2", { id: `${id}-title` }, title),
      h("div", { class: "tools" }, tools, h("label", null, toggle, " as a table"), link)),
    picture, rows);
  show(setting(key) === "1", false);
  return { node, picture, rows, isTable: () => toggle.checked };
}
