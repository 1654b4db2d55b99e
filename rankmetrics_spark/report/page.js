// Names from the data reach the page as text nodes and as values of charts only, never as markup.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const data = read("data"), charts = read("charts");
/** Experiments, metrics, and lines of a chart that are drawn at first; rows of a table; characters of a name. */
const DRAWN = 10, METRICS = 6, LINES = 20, ROWS = 50, LONG = 60;
/** What a row says of its candidate, and the mark of that; what is open needs none. */
const wordOf = ({ state }) => data.states[state].word, markOf = ({ state }) => state === "open" ? "" : data.states[state].mark;
const isPhone = matchMedia("(max-width: 720px)").matches, LABEL = isPhone ? 20 : 28;

// ---- rows and words

const rowsOf = (table) => table.e.map((_, i) => Object.fromEntries(Object.entries(table).map(([k, v]) => [k, v[i]])));
const means = rowsOf(data.means), compared = rowsOf(data.compared), trend = rowsOf(data.trend), developed = rowsOf(data.overTime);
/** What people call the statistical units: a user, users; or a query, queries. */
const [UNIT, UNITS, Units] = data.nouns;
const users = rowsOf(data.users), changes = rowsOf(data.userChanges), STEPS = data.steps;
/** The map of the metric that decides holds all segments, without intervals. */
const mapped = rowsOf(data.map).map(({ e, s, n, x, percent, state }) => ({ e, s, n, b: data.baselines[0], m: data.deciding, state, d: x, low: null, high: null, meanB: percent ? 1 : null, rel: percent ? x : null, relLow: null, relHigh: null }));
const name = (place) => data.experiments[place];
const segment = (row) => data.segments[row.s];
const label = (row) => data.metrics[row.m].label;
const everyone = (row) => segment(row) === "all";
const several = data.baselines.length > 1;
/** A name without its middle. */
const cut = (text, most) => text.length > most ? text.slice(0, Math.ceil(0.6 * (most - 1))) + "…" + text.slice(-Math.floor(0.4 * (most - 1))) : text;
const short = (text) => cut(text, LONG);
const pair = (row) => several ? `${name(row.e)} against ${name(row.b)}` : name(row.e);
const whole = (n) => n.toLocaleString("en-US");
const fixed = (x, digits = 4) => x === null ? "–" : x.toFixed(digits);
const interval = (low, high) => low === null ? "–" : `${fixed(low)} to ${fixed(high)}`;
function signed(x, digits) {
  const text = Math.abs(x).toFixed(digits);
  return (Number(text) === 0 ? "" : x > 0 ? "+" : "−") + text;
}
/** Digits after the point, the same for a difference and its bounds; as change.py has them. */
function digitsOf(x, unit) {
  if (!unit) return Math.abs(x) >= 10 ? 1 : 4;
  const small = x ? Math.ceil(-Math.log10(Math.abs(x))) : 0;
  return small > 1 && small <= 3 ? small : 1;
}
const changeText = ({ value, unit }) => value === null ? "–" : signed(value, digitsOf(value, unit)) + unit;
const spanText = ({ value, low, high, unit }) =>
  low === null ? "–" : `${signed(low, digitsOf(value, unit))} to ${signed(high, digitsOf(value, unit))}${unit}`;
const excludesZero = (low, high) => low === null || high === null ? null : low > 0 || high < 0;
const hasRatio = (row) => row.meanB > 0 && row.rel !== null;
/** Whether a row can be told in percent: where its two intervals disagree about 0, only the difference can. */
const isPercentage = (row) => hasRatio(row) && excludesZero(row.low, row.high) === excludesZero(row.relLow, row.relHigh);
const allPercentages = (rows) => rows.every((row) => row.d === null || isPercentage(row));
/** The difference and its interval, in percent of the baseline or as it is. */
function span(row, inPercent = isPercentage(row)) {
  const values = inPercent ? [row.rel, row.relLow, row.relHigh].map((x) => x === null ? null : 100 * x) : [row.d, row.low, row.high];
  return { value: values[0], low: values[1], high: values[2], unit: inPercent ? " %" : "" };
}

// ---- what is chosen

// The accent means better, so it is for the experiment that the answer calls so; another that is chosen stands out in ink.
const best = data.leader;
const drawn = new Set([...data.experiments.keys()].slice(0, DRAWN));
if (best >= 0) drawn.add(best);
/** The metric that decides comes first, then primary ones and guardrails, then the order of the run. */
const ROLES = ["primary", "guardrail"];
const byRole = [...data.metrics.keys()].sort((a, b) => (b === data.deciding) - (a === data.deciding) || place(ROLES, a) - place(ROLES, b) || a - b);
function place(roles, m) { const at = roles.indexOf(data.metrics[m].role); return at < 0 ? roles.length : at; }
const many = data.metrics.length > METRICS;
const chosen = {
  metrics: new Set(many ? byRole.filter((m, at) => at === 0 || (ROLES.includes(data.metrics[m].role) && at < 4)) : byRole),
  experiments: drawn, focus: best, pair: 0, kind: 0, mapped: data.deciding, words: "",
};
const shown = (row) => chosen.metrics.has(row.m) && chosen.experiments.has(row.e);
const metricsShown = () => byRole.filter((m) => chosen.metrics.has(m));
const GREYS = ["var(--faint)", "var(--soft)"], DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const isBaseline = (at) => data.baselines.includes(at) && !several;
const colour = (at) => at === best ? "var(--accent)" : at === chosen.focus || isBaseline(at) ? "var(--ink)" : GREYS[at % 2];
const focused = () => chosen.focus >= 0 && chosen.focus !== best ? short(name(chosen.focus)) : undefined;
const dash = (at) => at === best || at === chosen.focus || isBaseline(at) ? [] : DASHES[at % DASHES.length];

// ---- elements

/** Words from right to left stay among themselves: a number beside one keeps its side. */
const RIGHT = "[\\u0590-\\u08ff\\ufb1d-\\ufdff\\ufe70-\\ufeff\\u{10800}-\\u{10fff}\\u{1e800}-\\u{1efff}]", FROM_RIGHT = new RegExp(`(${RIGHT}(?:[^A-Za-z<>&]*${RIGHT})?)`, "u");
const isolated = (child) => typeof child === "string" && FROM_RIGHT.test(child) ? child.split(FROM_RIGHT).map((part, i) => i % 2 ? make("bdi", { textContent: part }) : part) : [child];
function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made && key !== "list") made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children.flatMap(isolated));
  return made;
}
function makeSvg(tag, properties, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const bdi = (text) => make("bdi", { className: "id", title: text.length > LONG ? text : "" }, text);
const section = (id) => document.getElementById(id);

// ---- charts: those on the screen are drawn at once, the others when nothing else is to be done

const undrawn = new Map();
let views = [], generation = 0;
const watcher = "IntersectionObserver" in window ? new IntersectionObserver((entries) => entries.forEach((entry) => { if (entry.isIntersecting) start(entry.target); }), { rootMargin: "300px" }) : null;
function start(chart) {
  const paint = undrawn.get(chart);
  if (!paint) return null;
  undrawn.delete(chart);
  watcher?.unobserve(chart);
  return paint();
}
const idle = window.requestIdleCallback ? (then) => requestIdleCallback(then, { timeout: 200 }) : (then) => setTimeout(then, 20);
/** Draw what is on the screen, then the rest piece by piece; data-seen and data-drawn say how far that is. */
async function drawAll() {
  const mine = ++generation, root = document.documentElement, height = innerHeight;
  root.dataset.seen = root.dataset.drawn = "";
  const visible = [...undrawn.keys()].filter((chart) => { const box = chart.getBoundingClientRect(); return box.top < height && box.bottom > 0; });
  await Promise.all(visible.map(start));
  if (mine !== generation) return;
  root.dataset.seen = String(visible.length);
  for (const chart of undrawn.keys()) watcher?.observe(chart);
  let n = visible.length;
  while (undrawn.size) {
    await new Promise(idle);
    if (mine !== generation) return;
    const next = undrawn.keys().next().value;
    if (next) { await start(next); n += 1; }
  }
  await Promise.all(drawing);
  if (mine === generation) root.dataset.drawn = String(n);
}
let drawing = new Set();

/** Axes without a mark would say nothing. */
const NOTHING = {
  forest: { is: (row) => isNothing(row.value), text: "There is nothing to draw: no difference is known, and the table says why." },
  changes: { is: (row) => row.what === "no change", text: `There is nothing to draw: the value of every ${UNIT} stays the same.` },
};
/** A chart with its heading and legend; a reader of the screen hears its name, and finds the numbers in the table below. */
function draw(parent, template, rows, { heading, small, about, unit, domain, edit, legend }) {
  const title = make("h3", {}, heading, small ? make("small", {}, small) : ""), nothing = NOTHING[template];
  if (nothing && rows.every(nothing.is)) return parent.append(make("figure", { className: "nothing" }, title, make("p", {}, nothing.text)));
  const chart = make("div", { className: "chart", role: "img", "aria-label": `${about}. The numbers are in the table below.` });
  const height = template === "forest" ? 26 * rows.length + 34 : charts[template].height + 40;
  chart.style.minHeight = `${height}px`;
  chart.addEventListener("click", tap);
  const figure = make("figure", {}, title, ...(legend ? [legendOf(legend)] : []), chart);
  if (legend?.length > 1) {
    figure.addEventListener("pointerover", ({ target }) => standOut(figure, target.__data__?.datum?.name ?? target.closest("[data-name]")?.dataset.name));
    figure.addEventListener("pointerleave", () => standOut(figure));
  }
  parent.append(figure);
  undrawn.set(chart, () => {
    const spec = structuredClone(charts[template]);
    spec.datasets = { ...spec.datasets, rows };
    for (const parameter of spec.params) if (parameter.name === "suffix") parameter.value = unit ?? "";
    if (template === "forest") stretch(spec, rows, domain);
    edit?.(spec);
    // Vega gives its own element a role and a name; they are for nobody.
    const inner = make("div", { "aria-hidden": "true" });
    chart.replaceChildren(inner);
    const done = vegaEmbed(inner, spec, { mode: "vega-lite", actions: false, renderer: "svg", config: { aria: false }, tooltip: { theme: "custom" } })
      .then((made) => { views.push(made.view); chart.style.minHeight = ""; if (legend) standOut(chart); }).finally(() => drawing.delete(done));
    drawing.add(done);
    return done;
  });
}
/** Among many lines, the one that is pointed at stands out, in the chart or by its name in the legend: the others fade. */
function standOut(figure, who = focused()) {
  for (const mark of figure.querySelectorAll(".mark-line path, .mark-symbol path, .mark-rule line, .mark-area path")) {
    const other = mark.__data__?.datum?.name, fades = who && other && other !== who;
    mark.style.strokeOpacity = mark.style.fillOpacity = fades ? 0.1 : "";
  }
}
/** A finger does not hover: after a tap, the mark is told that a pointer is over it. */
let touched = false;
addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch"; if (touched) document.getElementById("vg-tooltip-element")?.classList.remove("visible"); }, true);
function tap(event) {
  if (touched) event.target.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: event.clientX, clientY: event.clientY }));
}
/** The names of the lines of a chart, each with its line. */
function legendOf(places) {
  const line = (at) => makeSvg("svg", { width: 22, height: 8, viewBox: "0 0 22 8", "aria-hidden": "true" },
    makeSvg("line", { x1: 1, y1: 4, x2: 21, y2: 4, style: `stroke:${colour(at)}`, "stroke-width": at === chosen.focus ? 3 : 2, "stroke-dasharray": dash(at).join(" ") }));
  return make("p", { className: "legend" }, ...places.map((at) => make("span", { "data-name": short(name(at)) }, line(at), make("bdi", { title: name(at).length > LABEL ? name(at) : "" }, cut(name(at), LABEL)))));
}
/** One line per row, on a scale that all charts of a section share. */
function stretch(spec, rows, domain) {
  for (const layer of spec.layer) if (domain && layer.encoding.x?.field === "value") layer.encoding.x.scale = { domain, nice: true, zero: false };
  spec.height = 26 * rows.length;
}
function domainOf(rows, ends) {
  const values = [0, ...rows.flatMap((row) => ends(row).filter((x) => x !== null))], low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b)), room = 0.04 * (high - low || 1);
  return [low < 0 ? low - room : 0, high > 0 ? high + room : 0];
}
const spans = (row) => { const { value, low, high } = span(row, true); return [value, low, high]; };

// A table that sorts, filters, grows, and can be taken along.

const COLLATOR = new Intl.Collator("en", { numeric: true });
const isNothing = (x) => x === null || x === undefined;
/** Rows without a value come last in both directions. */
function inOrder(rows, value, down) {
  const keyed = rows.map((row) => [value(row), row]);
  return keyed.sort(([a], [b]) => isNothing(a) || isNothing(b) ? isNothing(a) - isNothing(b)
    : (down ? -1 : 1) * (typeof a === "number" ? a - b : COLLATOR.compare(a, b))).map(([, row]) => row);
}
const column = (title, value, show = value) => ({ title, value, show: (row) => { const x = show(row); return isNothing(x) ? "–" : typeof x === "number" ? whole(x) : x; } });
const names = (title, value) => ({ ...column(title, value), left: true });
/** An interval sorts by its lower bound; a file has both bounds. */
const bounds = (title, low, high, show) => ({ ...column(title, low, show), ends: [low, high] });
const textOf = (column, row) => { const made = column.show(row); return made instanceof Node ? made.textContent : String(made); };

const CONDITION = /^([^<>=]*?)(<=|>=|<|>|=)([-+−]?[\d.]+)%?$/u;
const squeezed = (title) => title.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
/** What a word of a filter asks of a row: a number, such as p<0.05 or users>1000, or a text in any cell. */
function conditionOf(word, columns) {
  const found = CONDITION.exec(word), title = found && squeezed(found[1]);
  const column = title && columns.find((each) => !each.left && squeezed(each.title).startsWith(title));
  if (!column) return (row, text) => text(row).includes(word);
  const limit = Number(found[3].replace("−", "-"));
  return (row) => {
    // The number that people see, in its unit.
    const x = isNothing(column.value(row)) ? NaN : parseFloat(textOf(column, row).replace(/[▲▼ ,+<]/gu, "").replace("−", "-"));
    return { "<": x < limit, ">": x > limit, "<=": x <= limit, ">=": x >= limit, "=": x === limit }[found[2]];
  };
}
const quoted = (text) => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
/** A spreadsheet computes texts that begin so. */
const harmless = (text) => /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
function cellsOf(columns, rows) {
  const wide = columns.flatMap((column) => column.ends ? column.ends.map((end, i) => [`${column.title} ${["low", "high"][i]}`, end]) : [[column.title, column.value]]);
  const line = (row) => wide.map(([, value]) => { const x = value(row); return isNothing(x) ? "" : typeof x === "number" ? String(x) : harmless(String(x)); });
  return [wide.map(([title]) => title), ...rows.map(line)];
}
function download(cells, caption) {
  const file = new Blob(["\ufeff", ...cells.map((line) => line.map(quoted).join(",") + "\r\n")], { type: "text/csv;charset=utf-8" });
  const link = make("a", { href: URL.createObjectURL(file), download: `${squeezed(caption.replace(/\(.*/, "")).slice(0, 40) || "table"}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
async function copy(cells) {
  const text = cells.map((line) => line.map((cell) => cell.replace(/[\t\r\n]/g, " ")).join("\t")).join("\n");
  try { await navigator.clipboard.writeText(text); return true; } catch { /* a page from a disk may not be allowed to */ }
  const area = make("textarea", { value: text, className: "unseen" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** Columns: title, value (to sort by), show (an element or text). On a phone, the difference comes second. */
function table(parent, caption, given, rows) {
  const columns = isPhone ? [...given.slice(0, 1), ...given.slice(1).filter((c) => c.first), ...given.slice(1).filter((c) => !c.first)] : given;
  let order = null, down = false, words = "", limit = ROWS, found = rows;
  const body = make("tbody"), count = make("span", { role: "status" }), texts = new Map();
  const more = make("button", { type: "button", className: "quiet", onclick: () => { limit = Infinity; fill(); } });
  const filter = make("input", { type: "search", placeholder: "Filter: a name, or p<0.05", "aria-label": `Filter: ${caption}` });
  filter.addEventListener("input", () => { words = filter.value.toLowerCase(); fill(); });
  const save = make("button", { type: "button", className: "quiet", onclick: () => download(cellsOf(given, found), caption) }, "Download CSV");
  const take = make("button", { type: "button", className: "quiet", onclick: async () => { take.textContent = await copy(cellsOf(given, found)) ? "Copied" : "Not copied"; setTimeout(() => { take.textContent = "Copy"; }, 2000); } }, "Copy");
  const heads = columns.map((column, i) => {
    const button = make("button", { type: "button" }, column.title);
    const head = make("th", { scope: "col", className: column.left ? "" : "n" }, button);
    button.addEventListener("click", () => {
      down = order === i ? !down : !column.left;
      order = i;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      fill();
    });
    return head;
  });
  const text = (row) => { if (!texts.has(row)) texts.set(row, columns.map((c) => textOf(c, row)).join(" ").toLowerCase()); return texts.get(row); };
  function fill() {
    const conditions = words.split(" ").filter(Boolean).map((word) => conditionOf(word, columns));
    found = rows.filter((row) => conditions.every((is) => is(row, text)));
    if (order !== null) found = inOrder(found, columns[order].value, down);
    body.replaceChildren(...found.slice(0, limit).map((row) => make("tr", {}, ...columns.map((column, i) => cell(column, row, i)))));
    count.textContent = found.length > limit ? `${limit} of ${whole(found.length)} rows` : `${whole(found.length)} ${found.length === 1 ? "row" : "rows"}`;
    more.textContent = `Show all ${whole(found.length)}`;
    more.hidden = found.length <= limit;
  }
  fill();
  parent.append(
    make("div", { className: "tools" }, filter, count, more, save, take),
    make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
      make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...heads)), body)));
}
function cell(column, row, i) {
  const text = column.show(row), head = i === 0;
  const made = make(head ? "th" : "td", { className: column.left ? (head ? "" : "id") : "n" }, text instanceof Node ? text : column.left ? bdi(text) : text);
  if (head) made.scope = "row";
  return made;
}

const opened = new Map();
/** The table of a section is made when somebody opens it. */
function numbers(id, build) {
  const details = section(id).querySelector(".numbers");
  details.replaceChildren(details.firstElementChild);
  opened.set(details, false);
  const fill = () => { if (details.open && !opened.get(details)) { opened.set(details, true); build(details); } };
  details.ontoggle = fill;
  fill();
}
