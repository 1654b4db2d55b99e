// Maps: one cell for each experiment and metric, for each segment and candidate, and for each pair.

const MOST_LINES = 30;
/** How strong the colour of a cell is: a share of the largest change of the map. */
const strength = (row, most) => Math.round(12 + 36 * Math.min(1, Math.abs(span(row).value ?? 0) / (most || 1)));
const mostOf = (rows) => { const sizes = rows.map((row) => Math.abs(span(row).value ?? 0)).sort((a, b) => a - b); return sizes[Math.floor(0.95 * (sizes.length - 1))] ?? 1; };
function mapCell(row, most) {
  if (!row) return make("td", { className: "blank" }, "–");
  const drawn = span(row), text = drawn.value === null ? "–" : signed(drawn.value, digitsOf(drawn.value, drawn.unit)), words = `${pair(row)} on ${label(row)}${everyone(row) ? "" : `, ${segment(row)}`}: ${changeText(drawn)}${drawn.low === null ? "" : ` (${spanText(drawn)})`}, ${wordOf(row)}`;
  const made = make("td", { className: row.state, title: words }, markOf(row) ? make("span", { className: "sign" }, markOf(row)) : "", make("span", { className: "unseen" }, ` ${wordOf(row)} `), text);
  made.style.setProperty("--strength", `${strength(row, most)}%`);
  return made;
}
/** What each map was made of: it is made again when that changes. */
const kept = new Map();
function isMade(key, ...parts) {
  const text = JSON.stringify(parts);
  if (kept.get(key) === text) return true;
  kept.set(key, text);
  return false;
}
/** A table of cells, in a place of its own in a section. */
function map(id, key, caption, corner, heads, lines, note) {
  const old = section(id).querySelector(`.map-place.${key}`);
  const head = make("tr", {}, make("td", {}, corner), ...heads.map((made) => make("th", { scope: "col" }, made)));
  const body = lines.map(([text, cells]) => make("tr", {}, make("th", { scope: "row" }, text), ...cells));
  const made = make("div", { className: `map-place ${key}` }, make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    make("table", { className: "map" }, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body))), ...note);
  if (old) old.replaceWith(made); else section(id).querySelector(".panels").before(made);
}
const shortName = (at) => make("bdi", { title: name(at).length > LABEL ? name(at) : "" }, cut(name(at), LABEL));
const unitNote = (rows) => allPercentages(rows) ? "in %" : "in % where a baseline allows it";

/** Every candidate on every metric; a metric is drawn on a click. */
let wholeMap = false;
const metricColumns = byRole.filter((m) => wholeRows.some((row) => row.m === m));
function metricMap() {
  const candidates = [...new Set(wholeRows.map((row) => row.e))].sort((a, b) => a - b);
  if (data.metrics.length < 3 || data.metrics.length * candidates.length < 8) return;
  if (isMade("by-metric", wholeMap)) {
    section("differences").querySelectorAll(".by-metric thead button").forEach((button, i) => button.setAttribute("aria-pressed", String(chosen.metrics.has(metricColumns[i]))));
    return;
  }
  const byKey = new Map(wholeRows.map((row) => [`${row.e} ${row.m}`, row])), columns = metricColumns, most = mostOf(wholeRows);
  const drawnLines = wholeMap ? candidates : candidates.slice(0, MOST_LINES);
  const heads = columns.map((m) => make("button", { type: "button", "aria-pressed": String(chosen.metrics.has(m)), title: `Charts of ${data.metrics[m].label}`, onclick: () => toggleMetric(m) }, data.metrics[m].label));
  const more = make("button", { type: "button", className: "quiet", hidden: drawnLines.length === candidates.length, onclick: () => { wholeMap = true; metricMap(); } }, `Show all ${whole(candidates.length)}`);
  const left = drawnLines.length < candidates.length ? `${drawnLines.length} of ${whole(candidates.length)} candidates are shown. ` : "";
  map("differences", "by-metric", `Change by experiment and metric, ${unitNote(wholeRows)}`, "", heads, drawnLines.map((e) => [shortName(e), columns.map((m) => mapCell(byKey.get(`${e} ${m}`), most))]),
    [make("p", { className: "key" }, left, make("span", { className: "hint" }, "Choose a metric to draw it."), more)]);
}
/** Every segment of every candidate, on one metric. */
let moreSegments = false;
function segmentMap(found) {
  const every = new Set([...mapped, ...segmentRows].map((row) => row.e)), all = every.size;
  const candidates = [...every].filter((e) => chosen.experiments.has(e)).sort((a, b) => a - b);
  if (isMade("by-segment", candidates, chosen.mapped, chosen.words, moreSegments)) return;
  if (candidates.length < 2) { section("segments").querySelector(".map-place")?.remove(); return; }
  const there = byRole.filter((m) => (m === data.deciding && mapped.length) || segmentRows.some((row) => row.m === m)), m = there.includes(chosen.mapped) ? chosen.mapped : there[0];
  const rows = m === data.deciding && mapped.length ? mapped : segmentRows.filter((row) => row.m === m), byKey = new Map(rows.map((row) => [`${row.e} ${row.s}`, row])), most = mostOf(rows);
  const known = found.filter((s) => rows.some((row) => row.s === s)), lines = moreSegments ? known : known.slice(0, MOST_LINES);
  const wholes = new Map(wholeRows.filter((row) => row.m === m).map((row) => [row.e, row]));
  const select = make("select", { "aria-label": "Metric of the map", onchange: () => { chosen.mapped = there[select.selectedIndex]; segmentMap(segmentsFound()); section("segments").querySelector(".by-segment select")?.focus(); } }, ...there.map((each) => make("option", {}, data.metrics[each].label)));
  select.selectedIndex = there.indexOf(m);
  const left = [lines.length < known.length ? `${lines.length} of ${whole(known.length)} segments are shown.` : "", candidates.length < all ? `${candidates.length} of ${whole(all)} candidates are shown.` : ""].filter(Boolean).join(" ");
  const more = make("button", { type: "button", className: "quiet", hidden: lines.length === known.length, onclick: () => { moreSegments = true; segmentMap(segmentsFound()); } }, `Show all ${whole(known.length)}`);
  const line = (s) => [make("bdi", { title: data.segments[s].length > LABEL ? data.segments[s] : "" }, cut(data.segments[s], LABEL)), candidates.map((e) => mapCell(byKey.get(`${e} ${s}`), most))];
  map("segments", "by-segment", `Change by segment and candidate on ${data.metrics[m].label}, ${unitNote(rows)}`, select, candidates.map(shortName),
    [[`all ${UNITS}`, candidates.map((e) => mapCell(wholes.get(e), most))], ...lines.map(line)], [make("p", { className: "key" }, left, more)]);
}

// ---- all pairs

/** What a row of a pair says of one of its two experiments: the difference is that of this one. */
function sideOf(row, e) {
  if (row.e === e) return { ...row, other: row.b, inUnit: { value: row.d, low: row.low, high: row.high, unit: "" } };
  const flip = (x) => isNothing(x) ? null : -x, state = { better: "worse", worse: "better" }[row.state] ?? row.state;
  return { ...row, state, other: row.e, inUnit: { value: flip(row.d), low: flip(row.high), high: flip(row.low), unit: "" } };
}
/** Each experiment against each other: the mark is about the experiment of the row. */
function pairMatrix() {
  if (isMade("pairs", chosen.mapped)) return;
  const rows = wholeRows.filter((row) => row.m === chosen.mapped), places = [...new Set(rows.flatMap((row) => [row.e, row.b]))].sort((a, b) => a - b);
  const lines = places.slice(0, MOST_LINES), cells = new Map();
  for (const row of rows) for (const at of [row.e, row.b]) { const side = sideOf(row, at); cells.set(`${at} ${side.other}`, side); }
  const sizes = rows.map((row) => Math.abs(row.d ?? 0)).sort((a, b) => a - b), most = sizes[Math.floor(0.95 * (sizes.length - 1))] || 1;
  const cell = (a, b) => {
    const side = cells.get(`${a} ${b}`);
    if (a === b || !side) return make("td", { className: "blank" }, a === b ? "" : "–");
    const made = make("td", { className: side.state, title: `${name(a)} against ${name(b)} on ${label(side)}: ${changeText(side.inUnit)} (${spanText(side.inUnit)}), ${wordOf(side)}` },
      markOf(side) ? make("span", { className: "sign" }, markOf(side)) : data.states.open.mark, make("span", { className: "unseen" }, ` ${wordOf(side)}`));
    made.style.setProperty("--strength", `${Math.round(12 + 36 * Math.min(1, Math.abs(side.d ?? 0) / most))}%`);
    return made;
  };
  const mean = new Map(wholeMeans.filter((row) => row.m === chosen.mapped).map((row) => [row.e, row.mean]));
  const there = byRole.filter((m) => wholeRows.some((row) => row.m === m));
  const select = make("select", { "aria-label": "Metric of the matrix", onchange: () => { chosen.mapped = there[select.selectedIndex]; pairMatrix(); section("differences").querySelector(".pairs select")?.focus(); } }, ...there.map((m) => make("option", {}, data.metrics[m].label)));
  select.selectedIndex = there.indexOf(chosen.mapped);
  const heads = [...lines.map((at) => make("span", { title: name(at) }, data.letters[at])), "mean", "better than"];
  const left = lines.length < places.length ? `${lines.length} of ${whole(places.length)} experiments are shown. ` : "";
  map("differences", "pairs", `Each experiment against each other on ${data.metrics[chosen.mapped].label}${rows.length < data.totals.pairs ? ` (${whole(rows.length)} of ${whole(data.totals.pairs)} pairs)` : ""}`, select, heads, lines.map((a) => [
    make("span", {}, make("b", { className: "letter" }, data.letters[a]), " ", shortName(a)),
    [...lines.map((b) => cell(a, b)), make("td", { className: "n" }, fixed(mean.get(a) ?? null)), make("td", {}, data.beaten[chosen.mapped][a] || "–")],
  ]), [make("p", { className: "key" }, `${left}Read a line: ▲ the experiment of the line is better than that of the column, ▼ worse, ≈ no difference shown. Letters name the experiments.`)]);
}
/** One experiment against each other, in the unit of the metric: shares would have different baselines. */
function pairForests() {
  const places = [...new Set(wholeRows.flatMap((row) => [row.e, row.b]))].sort((a, b) => a - b), one = chosen.focus >= 0 ? chosen.focus : places[0];
  panels("differences", metricsShown(), (grid, m) => {
    const sides = wholeRows.filter((row) => row.m === m && (row.e === one || row.b === one)).map((row) => sideOf(row, one)).sort((a, b) => a.other - b.other).slice(0, 2 * LINES);
    const made = sides.map((side) => ({ ...line({ ...side, d: side.inUnit.value, low: side.inUnit.low, high: side.inUnit.high }, `against ${name(side.other)}`, false), name: `${short(name(one))} against ${short(name(side.other))}` }));
    if (made.length) draw(grid, "forest", unique(made), { heading: data.metrics[m].label, small: `${cut(name(one), LABEL)} minus ${made.length < places.length - 1 ? `${made.length} of ${places.length - 1} others` : "each other"}; ${direction(m)}`, about: `Differences of ${name(one)} on ${data.metrics[m].label}`, unit: "" });
  });
}
