// The pictures: key space, heat map, lanes of workers, throughput.

import { clock, color, h, number, rate, svg, workerColor } from "./dom.js";

export const STATES = ["done", "leased", "stalled", "waiting", "failed"];

// Equal neighbours to one entry per bucket.
export function expand(cells) {
  const buckets = [];
  for (const [count, state, worker, covered] of cells) {
    for (let index = 0; index < count; index += 1) buckets.push({ state, worker, covered });
  }
  return buckets;
}

function stateColor(bucket) {
  if (bucket.state === "leased") return workerColor(bucket.worker ?? 0);
  return color(`--${bucket.state}`);
}

// Colours are asked for once per picture: asking the style costs more than drawing.
function palette() {
  const known = new Map();
  return (bucket) => {
    const key = bucket.state === "leased" ? `w${(bucket.worker ?? 0) % 6}` : bucket.state;
    if (!known.has(key)) known.set(key, stateColor(bucket));
    return known.get(key);
  };
}

// The map now: a column for each bucket; below, how much of it is covered.
export function drawMap(canvas, cells) {
  const buckets = expand(cells);
  canvas.width = buckets.length || 1;
  canvas.height = 32;
  const context = canvas.getContext("2d");
  const of = palette();
  const done = color("--done");
  buckets.forEach((bucket, x) => {
    context.fillStyle = of(bucket);
    context.fillRect(x, 0, 1, 32);
    if (bucket.state !== "done" && bucket.covered > 0) {
      const height = Math.max(1, Math.round(bucket.covered * 0.14));
      context.fillStyle = done;
      context.fillRect(x, 32 - height, 1, height);
    }
  });
}

// The share of a bucket that was covered since the column before, per second.
function rates(columns) {
  let before = null;
  return columns.map((column) => {
    const buckets = expand(column.cells);
    const seconds = before ? Math.max(0.001, (column.at - before.at) / 1000) : 1;
    const values = buckets.map((bucket, index) =>
      before ? Math.max(0, bucket.covered - before.buckets[index].covered) / seconds : 0);
    before = { at: column.at, buckets };
    return values;
  });
}

// Keys down, time across.
export function drawHeat(canvas, columns, mode) {
  const rows = 256;
  canvas.width = Math.max(1, columns.length);
  canvas.height = rows;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, rows);
  const of = palette();
  const [back, fore] = [color("--waiting"), color("--accent")];
  const speeds = mode === "rate" ? rates(columns) : null;
  const fastest = speeds ? Math.max(...speeds.flat(), 0.001) : 1;
  columns.forEach((column, x) => {
    const buckets = expand(column.cells);
    const step = buckets.length / rows;
    for (let row = 0; row < rows; row += 1) {
      const first = Math.floor(row * step);
      const part = buckets.slice(first, Math.max(first + 1, Math.floor((row + 1) * step)));
      // A failed key must show, however small it is.
      const bucket = part.find((it) => it.state === "failed") ?? part[0];
      if (mode === "rate") {
        const speed = Math.max(...part.map((_, index) => speeds[x][first + index] ?? 0));
        context.globalAlpha = 1;
        context.fillStyle = back;
        context.fillRect(x, row, 1, 1);
        context.globalAlpha = Math.sqrt(speed / fastest);
        context.fillStyle = fore;
      } else {
        const isPlain = mode === "status" && bucket.state === "leased";
        context.fillStyle = isPlain ? fore : of(bucket);
      }
      context.fillRect(x, row, 1, 1);
      context.globalAlpha = 1;
    }
  });
}

const swatch = (fill) => svg("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" },
  svg("rect", { width: 10, height: 10, rx: 2, fill }));

export function legend(cells, workers, mode = "worker") {
  const seen = new Set(cells.map(([, state]) => state));
  const items = STATES.filter((state) => seen.has(state) && (state !== "leased" || mode !== "worker"));
  const entries = items.map((state) => h("li", null,
    swatch(state === "leased" ? color("--accent") : color(`--${state}`)), state));
  if (mode === "worker") {
    for (const worker of workers.slice(0, 12)) {
      entries.push(h("li", null, swatch(workerColor(worker.number)), worker.name));
    }
    if (workers.length > 12) entries.push(h("li", null, `and ${workers.length - 12} more workers`));
  }
  return h("ul", { class: "legend" }, entries);
}

// Keys per second between the columns: of the run, and of one worker.
export function speeds(columns, worker = null) {
  const keys = (column) => (worker === null
    ? column.keys : column.workers.find(([number]) => number === worker)?.[2]);
  const points = [];
  for (let index = 1; index < columns.length; index += 1) {
    const [before, after] = [keys(columns[index - 1]), keys(columns[index])];
    const seconds = (columns[index].at - columns[index - 1].at) / 1000;
    const value = before === undefined || after === undefined || seconds <= 0
      ? null : Math.max(0, after - before) / seconds;
    points.push({ at: columns[index].at, value });
  }
  return points;
}

const WIDTH = 1000;

function axis(columns, height) {
  if (columns.length < 2) return [];
  const [first, last] = [columns[0].at, columns[columns.length - 1].at];
  return [svg("text", { x: 0, y: height + 14 }, clock(first)),
    svg("text", { x: WIDTH, y: height + 14, "text-anchor": "end" }, clock(last))];
}

export function throughput(columns) {
  const points = speeds(columns).filter((point) => point.value !== null);
  const height = 140;
  if (points.length < 2) return h("p", { class: "dim" }, "Needs a few seconds of history.");
  const top = Math.max(...points.map((point) => point.value), 1);
  const [first, last] = [columns[0].at, columns[columns.length - 1].at];
  const x = (at) => ((at - first) / Math.max(1, last - first)) * WIDTH;
  const y = (value) => height - (value / top) * height;
  const line = points.map((point) => `${x(point.at).toFixed(1)},${y(point.value).toFixed(1)}`);
  const area = `${x(points[0].at)},${height} ${line.join(" ")} ${x(points.at(-1).at)},${height}`;
  return svg("svg", { viewBox: `0 -16 ${WIDTH} ${height + 36}`, role: "img",
    "aria-label": `Throughput, now ${rate(points.at(-1).value)}, at most ${rate(top)}` },
    svg("text", { x: 0, y: -5 }, `${rate(top)}`),
    svg("line", { x1: 0, x2: WIDTH, y1: 0, y2: 0, stroke: color("--line") }),
    svg("line", { x1: 0, x2: WIDTH, y1: height, y2: height, stroke: color("--line") }),
    svg("polygon", { points: area, fill: color("--accent"), opacity: 0.15 }),
    svg("polyline", { points: line.join(" "), fill: "none", stroke: color("--accent"), "stroke-width": 2 }),
    axis(columns, height));
}

// A row for each worker: when it held shards; a mark where a lease changed hands.
export function lanes(columns, marks, name) {
  const numbers = [...new Set(columns.flatMap((column) => column.workers.map(([number]) => number)))]
    .sort((one, other) => one - other).slice(0, 24);
  if (columns.length < 2 || numbers.length === 0) {
    return h("p", { class: "dim" }, "Needs a few seconds of history.");
  }
  const [first, last] = [columns[0].at, columns[columns.length - 1].at];
  const [left, row] = [190, 26];
  const x = (at) => left + ((at - first) / Math.max(1, last - first)) * (WIDTH - left);
  const height = numbers.length * row;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height + 22}`, role: "img",
    "aria-label": "Workers over time; the table has the same" });
  numbers.forEach((number_, index) => {
    const top = index * row;
    picture.append(svg("text", { x: 0, y: top + 16 }, name(number_).slice(0, 30)),
      svg("rect", { x: left, y: top + 4, width: WIDTH - left, height: row - 10, fill: color("--waiting"), opacity: 0.5 }));
    let since = null;
    columns.forEach((column, at) => {
      const held = column.workers.find(([worker]) => worker === number_)?.[1] > 0;
      if (held && since === null) since = column.at;
      const isLast = at === columns.length - 1;
      if (since !== null && (!held || isLast)) {
        picture.append(svg("rect", { x: x(since), y: top + 4, height: row - 10, rx: 2,
          width: Math.max(2, x(column.at) - x(since)), fill: workerColor(number_) }));
        since = null;
      }
    });
  });
  for (const mark of marks) {
    const index = numbers.indexOf(mark.to);
    if (index < 0 || mark.at < first) continue;
    const [cx, cy] = [x(mark.at), index * row + 12];
    const isHandoff = mark.kind === "handoff";
    picture.append(svg("path", {
      d: isHandoff ? `M${cx} ${cy - 7}l7 7l-7 7l-7 -7z` : `M${cx - 6} ${cy - 9}h12l-6 12z`,
      fill: isHandoff ? color("--text") : color("--failed"), stroke: color("--back") },
      svg("title", null, `${mark.kind} of shard ${mark.shard} from ${name(mark.from)} at ${clock(mark.at)}`)));
  }
  picture.append(svg("text", { x: left, y: height + 16 }, clock(first)),
    svg("text", { x: WIDTH, y: height + 16, "text-anchor": "end" }, clock(last)));
  return picture;
}

// What lies below the pointer or the arrow keys of a map, in words.
export function describe(cells, position, workers) {
  const buckets = expand(cells);
  const index = Math.max(0, Math.min(buckets.length - 1, Math.floor(position * buckets.length)));
  const bucket = buckets[index];
  if (!bucket) return "";
  const worker = workers.find((it) => it.number === bucket.worker);
  const by = worker ? ` by ${worker.name}` : "";
  const at = ((index / buckets.length) * 100).toFixed(1);
  return `At ${at} %: ${bucket.state}${by}, ${number(bucket.covered)} % covered`;
}
