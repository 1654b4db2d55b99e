// The sections of charts, each with its table.

const CLASSES = { better: "up", worse: "down" };
/** A column has one unit: the difference and its interval as they are, and in percent where a row can be told so. */
const changeColumns = [
  column("change", (row) => isPercentage(row) ? row.rel : null, (row) => isPercentage(row) ? changeText(span(row, true)) : "–"),
  bounds("interval in %", (row) => isPercentage(row) ? row.relLow : null, (row) => isPercentage(row) ? row.relHigh : null, (row) => isPercentage(row) ? spanText(span(row, true)) : "–"),
];
const marked = (row, text) => make("span", { className: CLASSES[row.state] ?? "flat" }, (CLASSES[row.state] ? `${markOf(row)} ` : "") + text);
const differenceColumns = (more) => [
  names("experiment", (row) => name(row.e)),
  ...(several ? [names("against", (row) => name(row.b))] : []),
  ...more,
  names("metric", label),
  column("baseline", (row) => row.meanB, (row) => fixed(row.meanB)),
  column("candidate", (row) => row.meanC, (row) => fixed(row.meanC)),
  { ...column("difference", (row) => row.d, (row) => marked(row, changeText(span(row, false)))), first: true },
  bounds("interval", (row) => row.low, (row) => row.high, (row) => spanText(span(row, false))),
  ...changeColumns,
  column("p, corrected", (row) => row.p, (row) => row.said ?? "–"),
  column(data.units, (row) => row.n),
  names("verdict", (row) => row.note ? `${wordOf(row)}: ${row.note}` : wordOf(row)),
];
const meanColumns = (more) => [
  names("experiment", (row) => name(row.e)), ...more, names("metric", label), column("mean", (row) => row.mean, (row) => fixed(row.mean)),
  bounds("interval", (row) => row.low, (row) => row.high, (row) => interval(row.low, row.high)), column(UNITS, (row) => row.n),
];
function line(row, text, inPercent) {
  const drawn = span(row, inPercent), { value, low, high } = drawn, state = row.state;
  const ink = state === "better" ? "var(--accent)" : state === "worse" ? "var(--ink)" : "var(--faint)";
  return { label: cut(text, LABEL), name: short(pair(row)), metric: label(row), segment: segment(row), value, low: low ?? value, high: high ?? value, stroke: ink,
    fill: state === "worse" || state === "doubtful" ? "var(--paper)" : ink, difference: changeText(drawn), users: data.units === UNITS ? whole(row.n) : `${whole(row.n)} ${data.units}`, p: row.said ?? "–", says: wordOf(row),
    interval: spanText(drawn) };
}
/** Charts share a scale where they share a unit: percent. */
const sharedDomain = (rows) => rows.length && allPercentages(rows) ? domainOf(rows, spans) : null;
const unique = (rows) => {
  // Labels are places on an axis: names that were shortened to the same text must stay apart.
  const seen = new Map();
  return rows.map((row) => { const n = (seen.get(row.label) ?? 0) + 1; seen.set(row.label, n); return n > 1 ? { ...row, label: `${row.label} (${n})` } : row; });
};
const against = () => several ? "pair by pair" : `difference to ${cut(name(data.baselines[0]), LABEL)}`;

function panels(id, groups, paint) {
  const grid = section(id).querySelector(".panels");
  grid.replaceChildren();
  for (const group of groups) paint(grid, group);
  grid.classList.toggle("one", grid.children.length === 1);
}
const limited = () => (chosen.experiments.size < data.experiments.length ? ` ${chosen.experiments.size} of ${whole(data.experiments.length)} experiments are drawn.` : "") + limitedMetrics();
const limitedMetrics = () => (chosen.metrics.size < data.metrics.length ? ` ${chosen.metrics.size} of ${data.metrics.length} metrics are drawn; choose others above.` : "");
/** How many of the rows of a section fit into this page; nothing where all do. */
const held = (id, rows) => rows.length < data.totals[id] ? ` (${whole(rows.length)} of ${whole(data.totals[id])} rows; the others are in the Parquet tables)` : "";
const heldNote = (id, rows) => rows.length < data.totals[id] ? ` This page holds ${whole(rows.length)} of ${whole(data.totals[id])} rows.` : "";
const counted = (rows) => { const n = new Set(rows.map((row) => row.e)).size; return n < data.experiments.length ? ` It has ${whole(n)} of ${whole(data.experiments.length)} experiments.` : ""; };
const say = (id, text) => { section(id).querySelector(".intro").replaceChildren(...isolated(text)); section(id).hidden = false; };
const direction = (m) => data.metrics[m].direction;
/** Candidates stand in one order everywhere: that of the experiments, the best mean first. */
const inPlace = (a, b) => a.e - b.e || a.b - b.b || a.s - b.s;

const wholeRows = compared.filter(everyone);
function differences() {
  if (!wholeRows.length) return;
  const level = (data.confidence ? `${data.confidence} intervals` : "intervals") + (data.valid ? `, ${data.valid}` : "") + (data.widened ? ", widened for the number of comparisons as p is" : "");
  const who = several ? "Each experiment against each other" : `Each candidate against ${short(name(data.baselines[0]))}`;
  say("differences", `${who}, with ${level}.${several ? limitedMetrics() : limited()}${heldNote("differences", wholeRows)}`);
  if (several) pairMatrix(); else metricMap();
  const domain = sharedDomain(wholeRows.filter(shown));
  if (several) pairForests(); else panels("differences", metricsShown(), (grid, m) => {
    const mine = wholeRows.filter((row) => row.m === m && shown(row)).sort(inPlace), inPercent = allPercentages(mine);
    if (mine.length) draw(grid, "forest", unique(mine.map((row) => line(row, pair(row), inPercent))), { heading: data.metrics[m].label, small: `${against()}; ${direction(m)}`, about: `Differences on ${data.metrics[m].label}`, unit: inPercent ? " %" : "", domain });
  });
  numbers("differences", (at) => table(at, `Differences for all ${UNITS}${held("differences", wholeRows)}`, differenceColumns([]), inOrder(wholeRows, (row) => byRole.indexOf(row.m), false)));
}
/** All that was computed of a difference beside the test that decides. */
function furtherTests() {
  const rows = rowsOf(data.further), columns = data.furtherColumns;
  if (!rows.length || !columns.length) return;
  section("further").hidden = false;
  const show = { p: (x) => x < 0.001 ? "< 0.001" : x.toFixed(3), share: (x) => `${(100 * x).toFixed(1)} %`, number: (x) => fixed(x), signed: (x) => signed(x, 4), count: whole, text: (x) => x };
  const made = columns.map(({ title, kind, keys }) => kind === "interval"
    ? bounds(title, (row) => row[keys[0]], (row) => row[keys[1]], (row) => isNothing(row[keys[0]]) ? "–" : `${signed(row[keys[0]], 4)} to ${signed(row[keys[1]], 4)}`)
    : (kind === "text" ? names : column)(title, (row) => row[keys[0]] ?? (kind === "text" ? "–" : null), (row) => isNothing(row[keys[0]]) ? "–" : show[kind](row[keys[0]])));
  numbers("further", (at) => table(at, `Further numbers of each difference, for all ${UNITS}${held("further", rows)}`, [
    names("experiment", (row) => name(row.e)), ...(several ? [names("against", (row) => name(row.b))] : []), names("metric", label), ...made,
  ], inOrder(rows, (row) => byRole.indexOf(row.m), false)));
}

const wholeMeans = means.filter(everyone);
function meansByCutoff() {
  if (!wholeMeans.length) return;
  say("means", `${data.overLists ? `Mean over lists, whose errors are by ${UNIT},` : `Mean over ${UNITS}`} with its ${data.confidence} interval.${limited()}${heldNote("means", wholeMeans)} Axes of cut-offs may not start at 0.`);
  const families = [...new Set(metricsShown().map((m) => data.metrics[m].family))];
  const places = [...chosen.experiments].sort((a, b) => a - b), middle = (places.length - 1) / 2;
  panels("means", families, (grid, family) => {
    const found = wholeMeans.filter((row) => shown(row) && data.metrics[row.m].family === family && row.mean !== null).sort((a, b) => a.e - b.e);
    const cuts = [...new Set(found.map((row) => data.metrics[row.m].cut ?? Infinity))].sort((a, b) => a - b);
    if (!found.length) return;
    const about = `Means of ${family} by cut-off`;
    if (cuts.length === 1) return draw(grid, "forest", unique(found.map((row) => meanLine(row, name(row.e)))), { heading: label(found[0]), small: direction(found[0].m), about, edit: plainAxis });
    // The whole list stands at twice the largest cut-off; experiments stand side by side on a logarithmic axis.
    const end = 2 * (cuts.filter(Number.isFinite).at(-1) ?? 1), at = (row) => data.metrics[row.m].cut ?? end, ticks = cuts.map((x) => Number.isFinite(x) ? x : end);
    const step = Math.min(1.035, 1 + 0.25 / places.length);
    const made = found.map((row) => ({ cut: at(row) * step ** (places.indexOf(row.e) - middle), at: at(row), name: short(name(row.e)), metric: label(row), mean: row.mean,
      low: row.low ?? row.mean, high: row.high ?? row.mean, colour: colour(row.e), dash: dash(row.e), text: fixed(row.mean), interval: interval(row.low, row.high), users: whole(row.n) }));
    draw(grid, "cutoffs", made, { heading: family, small: direction(found[0].m), about, legend: [...new Set(found.map((row) => row.e))], edit: (spec) => {
      for (const layer of spec.layer) if (layer.encoding.x?.field === "cut") Object.assign(layer.encoding.x.axis ?? {}, { values: ticks, labelExpr: cuts.includes(Infinity) ? `datum.value == ${end} ? 'all' : format(datum.value, 'd')` : "format(datum.value, 'd')" });
    } });
  });
  numbers("means", (at) => table(at, `${data.overLists ? `Means over the lists of all ${UNITS}` : `Means over all ${UNITS}`}${held("means", wholeMeans)}`,
    [...meanColumns([]), column(`${UNITS} with a relevant item`, (row) => row.relevant)], inOrder(wholeMeans, (row) => byRole.indexOf(row.m), false)));
}
/** Means have no sign. */
const plainAxis = (spec) => { for (const { encoding } of spec.layer) if (encoding.x?.axis?.labelExpr) encoding.x.axis.labelExpr = "format(datum.value, '~g')"; };
const meanLine = (row, text) => ({ label: cut(text, LABEL), name: short(name(row.e)), metric: label(row), segment: segment(row), value: row.mean, low: row.low ?? row.mean, high: row.high ?? row.mean,
  stroke: colour(row.e), fill: colour(row.e), difference: fixed(row.mean), interval: interval(row.low, row.high), p: "–", users: whole(row.n), says: "not compared" });

/** The upper edge of a step; the users of step -1 are at the lowest value itself. */
const edgeOf = (row, step) => row.low + (step + 1) * (row.high - row.low) / STEPS;
const total = (row) => row.counts.reduce((a, b) => a + b, 0);
const steps = (row) => row.counts.map((n, i) => ({ ...row, step: i - 1, n })).filter(({ n }) => n);
function distribution() {
  if (changes.length) return distributionOfChanges();
  if (!users.length) return;
  say("users", `Share of the ${UNITS} at or below each value. The lower a line, the more ${UNITS} have high values.${limited()}${counted(users)}${heldNote("users", users)}`);
  panels("users", metricsShown(), (grid, m) => {
    const made = [], mine = users.filter((row) => row.m === m && chosen.experiments.has(row.e)).sort((a, b) => a.e - b.e);
    for (const row of mine) {
      const of = total(row);
      let sum = 0;
      row.counts.forEach((n, i) => {
        sum += n;
        const edge = edgeOf(row, i - 1);
        made.push({ name: short(name(row.e)), metric: data.metrics[m].label, edge, share: sum / of, colour: colour(row.e), dash: dash(row.e), weight: row.e === chosen.focus ? 2.6 : 1.6,
          upto: fixed(edge, 3), text: `${(100 * sum / of).toFixed(1)} %`, users: `${whole(sum)} of ${whole(of)}` });
      });
    }
    if (made.length) draw(grid, "distribution", made, { heading: data.metrics[m].label, small: `${UNITS} at or below`, about: `Distribution of ${data.metrics[m].label} over ${UNITS}`, legend: mine.map((row) => row.e) });
  });
  numbers("users", (at) => table(at, `${Units} by value, in ${STEPS} steps${held("users", users)}`, [
    names("experiment", (row) => name(row.e)), names("metric", label), column("value up to", (row) => edgeOf(row, row.step), (row) => fixed(edgeOf(row, row.step), 3)),
    column(UNITS, (row) => row.n), column("share", (row) => row.n / total(row), (row) => `${(100 * row.n / total(row)).toFixed(1)} %`),
  ], users.flatMap(steps)));
}
/** Of paired experiments: how many users gained and lost how much. */
function distributionOfChanges() {
  const pairs = [...new Map(changes.map((row) => [pair(row), row])).values()].sort(inPlace);
  const at = Math.max(0, Math.min(chosen.pair, pairs.length - 1)), one = pairs[at], mine = changes.filter((row) => row.e === one.e && row.b === one.b);
  say("users", `The same ${UNITS} see both: how much the value of each ${UNIT} changes from ${short(name(one.b))} to ${short(name(one.e))}. ${Units} whose value stays the same are a bar at 0.${limited()}${heldNote("userChanges", changes)}`);
  if (pairs.length > 1) choose("users", several ? "Pair" : "Candidate", pairs.map(pair), at, (i) => { chosen.pair = i; distribution(); bySegment(); drawAll(); });
  const edges = (row, i) => { const width = (row.high - row.low) / STEPS, step = i - STEPS; return step === 0 ? [0, 0] : step > 0 ? [(step - 1) * width, step * width] : [step * width, (step + 1) * width]; };
  const words = (row, i) => { const [low, high] = edges(row, i); return low === high ? "no change" : `${signed(low, 3) || "0"} to ${signed(high, 3) || "0"}`; };
  panels("users", metricsShown(), (grid, m) => {
    const row = mine.find((each) => each.m === m);
    if (!row) return;
    const of = total(row), width = (row.high - row.low) / STEPS, lower = data.metrics[m].lower;
    const made = row.counts.map((n, i) => {
      const [low, high] = edges(row, i), isBetter = lower ? i < STEPS : i > STEPS;
      return { from: i === STEPS ? -0.18 * width : low, to: i === STEPS ? 0.18 * width : high, zero: 0, n, fill: i === STEPS ? "var(--faint)" : isBetter ? "var(--accent)" : "var(--paper)", stroke: i === STEPS ? "var(--faint)" : isBetter ? "var(--accent)" : "var(--ink)",
        what: words(row, i), users: whole(n), share: `${(100 * n / of).toFixed(1)} %`, metric: data.metrics[m].label };
    }).filter(({ n }) => n);
    const [down, up] = [row.counts.slice(0, STEPS), row.counts.slice(STEPS + 1)].map((part) => part.reduce((a, b) => a + b, 0)), [gained, lost] = lower ? [down, up] : [up, down];
    draw(grid, "changes", made, { heading: data.metrics[m].label, small: `${whole(gained)} better, ${whole(row.counts[STEPS])} equal, ${whole(lost)} worse of ${whole(of)} ${UNITS}`, about: `Changes of ${data.metrics[m].label} by ${UNIT}` });
  });
  numbers("users", (place) => table(place, `${Units} by change${held("userChanges", changes)}`, [
    names("experiment", (row) => name(row.e)), names("against", (row) => name(row.b)), names("metric", label),
    column("change", (row) => edges(row, row.i)[0], (row) => words(row, row.i)), column(UNITS, (row) => row.n), column("share", (row) => row.n / total(row), (row) => `${(100 * row.n / total(row)).toFixed(1)} %`),
  ], changes.flatMap((row) => row.counts.map((n, i) => ({ ...row, i, n })).filter(({ n }) => n))));
}

const segmentRows = compared.filter((row) => !everyone(row)), sizes = new Map();
for (const row of [...mapped, ...segmentRows, ...means.filter((row) => !everyone(row))]) sizes.set(row.s, Math.max(sizes.get(row.s) ?? 0, row.n));
const bySize = [...sizes.keys()].sort((a, b) => sizes.get(b) - sizes.get(a) || a - b);
const segmentsFound = () => bySize.filter((s) => chosen.words.split(" ").every((word) => data.segments[s].toLowerCase().includes(word)));
function bySegment() {
  const averages = means.filter((row) => !everyone(row));
  if (!segmentRows.length && !averages.length) return;
  searchSegments();
  const found = segmentsFound(), drawnSegments = found.slice(0, LINES), left = found.length > LINES ? ` The ${LINES} largest of ${whole(found.length)} segments are drawn.` : "";
  if (!segmentRows.length) return segmentMeans(averages, drawnSegments, left);
  const pairs = [...new Map(segmentRows.map((row) => [pair(row), row])).values()].sort((a, b) => (b.e === chosen.focus) - (a.e === chosen.focus) || inPlace(a, b));
  const at = Math.min(chosen.pair, pairs.length - 1), one = pairs[at], mine = compared.filter((row) => row.e === one.e && row.b === one.b);
  say("segments", `Each chart shows one candidate by segment, with all ${UNITS} first${data.valid ? `; intervals are ${data.valid}` : ""}.${left}${heldNote("segments", segmentRows)}`);
  choose("segments", "Candidate", pairs.map(pair), at, (i) => { chosen.pair = i; bySegment(); drawAll(); });
  const order = [data.segments.indexOf("all"), ...drawnSegments], there = new Set(order);
  const domain = sharedDomain(mine.filter((row) => chosen.metrics.has(row.m) && there.has(row.s)));
  panels("segments", metricsShown(), (grid, m) => {
    const lines = mine.filter((row) => row.m === m && there.has(row.s)).sort((a, b) => order.indexOf(a.s) - order.indexOf(b.s)), inPercent = allPercentages(lines);
    if (lines.some((row) => !everyone(row))) draw(grid, "forest", unique(lines.map((row) => line(row, everyone(row) ? `all ${UNITS}` : segment(row), inPercent))), { heading: data.metrics[m].label, small: several ? cut(pair(one), 2 * LABEL) : `${cut(name(one.e), LABEL)}, ${against()}`, about: `Differences on ${data.metrics[m].label} by segment`, unit: inPercent ? " %" : "", domain });
  });
  if (!several) segmentMap(found);
  numbers("segments", (place) => table(place, `Differences by segment${held("segments", segmentRows)}`, differenceColumns([names("segment", segment)]), segmentRows));
}
function segmentMeans(rows, drawnSegments, left) {
  const places = [...new Set(rows.map((row) => row.e))], at = Math.min(chosen.pair, places.length - 1), one = places[at];
  say("segments", `Means of one experiment by segment. Nothing was compared.${left}${heldNote("segmentMeans", rows)}`);
  choose("segments", "Experiment", places.map(name), at, (i) => { chosen.pair = i; bySegment(); drawAll(); });
  const order = [data.segments.indexOf("all"), ...drawnSegments], there = new Set(order);
  panels("segments", metricsShown(), (grid, m) => {
    const found = means.filter((row) => row.m === m && row.e === one && row.mean !== null && there.has(row.s)).sort((a, b) => order.indexOf(a.s) - order.indexOf(b.s));
    if (found.length) draw(grid, "forest", unique(found.map((row) => meanLine(row, everyone(row) ? `all ${UNITS}` : segment(row)))), { heading: data.metrics[m].label, small: `${cut(name(one), LABEL)}; ${direction(m)}`, about: `Means of ${data.metrics[m].label} by segment`, edit: plainAxis });
  });
  numbers("segments", (place) => table(place, `Means by segment${held("segmentMeans", rows)}`, meanColumns([names("segment", segment)]), rows));
}
/** One search for the segments of charts and map; it stays while the rest is drawn again. */
function searchSegments() {
  if (sizes.size <= 8 || section("segments").querySelector(".search")) return;
  const input = make("input", { type: "search", placeholder: "Find a segment", "aria-label": "Find a segment" });
  input.addEventListener("input", () => { chosen.words = input.value.toLowerCase(); bySegment(); drawAll(); });
  section("segments").querySelector(".intro").after(make("div", { className: "tools search" }, input));
}
function choose(id, text, options, at, then) {
  if (options.length < 2) return;
  const old = section(id).querySelector(".tools.choice");
  const select = make("select", { onchange: () => then(select.selectedIndex) }, ...options.map((option) => make("option", {}, short(option))));
  select.selectedIndex = at;
  const made = make("div", { className: "tools choice" }, make("label", {}, `${text} `, select));
  const focused = old?.contains(document.activeElement);
  if (old) old.replaceWith(made); else section(id).querySelector(".intro").after(made);
  if (focused) select.focus();
}

/** The table of checks, what failed first. */
function checksTable() {
  const { status, ...columns } = data.checks, rows = status.map((level, i) => ({ level, ...Object.fromEntries(Object.entries(columns).map(([key, values]) => [key, values[i]])) }));
  if (!rows.length) return section("checks").querySelector(".numbers").remove();
  const digits = (x) => isNothing(x) ? "–" : Number.isInteger(x) ? whole(x) : String(Number(x.toPrecision(4)));
  const number = (title, key) => column(title, (row) => row[key], (row) => digits(row[key]));
  numbers("checks", (at) => table(at, `The table of checks${rows.length < data.totals.checks ? ` (${rows.length} of ${whole(data.totals.checks)} rows; what failed first)` : ""}`, [
    names("check", (row) => row.name), names("experiment", (row) => row.experiment_id ?? "–"), names("segment", (row) => row.segment ?? "–"), names("metric", (row) => row.metric ?? "–"),
    names("status", (row) => row.level.replace("_", " ")), number("observed", "observed"), number("limit", "limit"), number("margin", "margin"), names("what", (row) => row.sentence),
  ], rows));
}

// ---- over time

const KINDS = { cumulative: "up to each day", day: "per day", days_since_first: `by days since a ${UNIT}'s first date` };
const SHADES = { warned: 0.16, missing: 0.3, failed: 0.45 };
const STATES = { failed: "the run failed", warned: "the run warned", missing: "nothing is published" };
const BANDS = 3;
const noon = (date, days) => new Date(Date.parse(`${date}T12:00:00Z`) + days * 864e5).toISOString();
/** The dates of a section, and the days among them that need a word. */
const badDays = (dates) => data.alerts.filter(({ date }) => date >= dates[0]);
/** The worst days first. */
const badDayTable = (place, bad) => table(place, "Days that failed, warned or are missing", [
  names("date", (row) => row.date), names("what", (row) => STATES[row.state]), names("why", (row) => row.text)], [...bad].sort((a, b) => SHADES[b.state] - SHADES[a.state]));
/** A label for each day, or for every second one, and so on: Vega counts days from the first of each month. */
function wholeDays(spec, dates) {
  const first = Date.parse(dates[0]), days = (Date.parse(dates.at(-1)) - first) / 864e5, step = Math.max(1, Math.ceil(days / 7));
  const values = Array.from({ length: Math.floor(days / step) + 1 }, (_, i) => first + i * step * 864e5);
  for (const { encoding } of spec.layer) if (encoding.x?.field === "date" && encoding.x.axis) encoding.x.axis.values = values;
}

function overTime() {
  const kinds = Object.keys(KINDS).filter((kind) => new Set(developed.filter((row) => row.kind === kind).map((row) => row.label)).size > 1);
  if (!kinds.length) return meansOverTime();
  const kind = kinds[Math.min(chosen.kind, kinds.length - 1)], byDate = kind !== "days_since_first";
  const rows = developed.filter((row) => row.kind === kind).sort((a, b) => byDate ? (a.label > b.label) - (a.label < b.label) : a.label - b.label);
  const dates = [...new Set(rows.map((row) => row.label))].sort(), bad = byDate ? badDays(dates) : [];
  const about = { cumulative: "Difference over all days up to each day", day: "Difference of each day by itself", days_since_first: `Difference of all ${UNITS} by how many days after their first date it is (between ${UNITS} too: those who stay are others)` }[kind];
  const there = Object.keys(SHADES).filter((state) => bad.some((each) => each.state === state)).map((state) => STATES[state]);
  const shaded = bad.length ? ` Grey days${there.length > 1 ? ", from light to dark" : ""}: ${there.join(", ")}.` : "";
  const series = new Set(rows.filter(shown).map(pair)), thin = series.size > BANDS ? " Intervals are drawn for the highlighted experiment; hover over a point for the others." : "";
  say("trend", `${about}, with ${data.confidence} intervals${kind === "cumulative" && data.validOverTime ? `, ${data.validOverTime}` : ""}; 0 is ${several ? "no difference" : `no difference to ${short(name(data.baselines[0]))}`}.${shaded}${thin}${limited()}${heldNote("overTime", developed)}`);
  if (kinds.length > 1) choose("trend", "Show the difference", kinds.map((each) => KINDS[each]), kinds.indexOf(kind), (i) => { chosen.kind = i; overTime(); drawAll(); });
  panels("trend", metricsShown(), (grid, m) => {
    const mine = rows.filter((row) => shown(row) && row.m === m && row.d !== null), inPercent = allPercentages(mine);
    const last = new Map(mine.map((row) => [pair(row), row.label]));
    const points = mine.map((row) => {
      const drawn = span(row, inPercent), { value, low, high } = drawn, wide = low !== null && (series.size <= BANDS || row.e === chosen.focus);
      // Up to each day, intervals are of the same users and more; those of single days are apart.
      const band = wide && kind === "cumulative" ? 0.14 : 0, rule = wide && !band ? 0.45 : 0;
      return { date: row.label, day: Number(row.label), label: row.label, name: short(pair(row)), metric: label(row), value, low: low ?? value, high: high ?? value, band, rule, colour: colour(row.e), dash: dash(row.e),
        end: dates.length <= 20 && row.label === last.get(pair(row)) && (series.size <= BANDS || row.e === chosen.focus) ? cut(pair(row), LABEL) : "",
        text: changeText(drawn), interval: spanText(drawn), means: `${fixed(row.meanB)} → ${fixed(row.meanC)}`, users: whole(row.n) };
    });
    const grey = bad.map(({ date, state, text }) => ({ state, label: date, from: noon(date, -1), to: noon(date, 0), shade: SHADES[state], alert: `${STATES[state]}: ${text}` }));
    // The first layer are the bad days; without one, its axis would have no end.
    const edit = (spec) => { if (byDate && !grey.length) spec.layer = spec.layer.slice(1); if (byDate) wholeDays(spec, dates); };
    if (points.length) draw(grid, byDate ? "byDate" : "byDay", [...grey, ...points], { heading: data.metrics[m].label, small: `${against()}; ${direction(m)}`, about: `Differences on ${data.metrics[m].label} ${KINDS[kind]}`, unit: inPercent ? " %" : "", edit, legend: several ? null : [...new Set(mine.map((row) => row.e))].sort((a, b) => a - b) });
  });
  numbers("trend", (place) => {
    table(place, `Differences ${KINDS[kind]}${held("overTime", developed)}`, [
      byDate ? names("date", (row) => row.label) : column("days", (row) => Number(row.label), (row) => row.label),
      names("experiment", (row) => name(row.e)), ...(several ? [names("against", (row) => name(row.b))] : []), names("metric", label),
      column("baseline", (row) => row.meanB, (row) => fixed(row.meanB)), column("candidate", (row) => row.meanC, (row) => fixed(row.meanC)),
      { ...column("difference", (row) => row.d, (row) => changeText(span(row, false))), first: true },
      bounds("interval", (row) => row.low, (row) => row.high, (row) => spanText(span(row, false))), ...changeColumns, column(UNITS, (row) => row.n),
    ], rows);
    if (bad.length) badDayTable(place, bad);
  });
}
/** Nothing was compared: the means by date. */
function meansOverTime() {
  const dates = [...new Set(trend.map((row) => row.date))].sort();
  if (dates.length < 2) return;
  const bad = badDays(dates), note = bad.length ? " A triangle marks a day whose run failed or warned, or that is missing." : "";
  say("trend", `Mean of each evaluation date with its interval.${note}${limited()}${counted(trend)}${heldNote("trend", trend)}`);
  panels("trend", metricsShown(), (grid, m) => {
    const made = trend.filter((row) => shown(row) && row.m === m && row.mean !== null).map((row) => ({ date: row.date, day: row.date, e: row.e, name: short(name(row.e)), metric: label(row), mean: row.mean,
      low: row.low ?? row.mean, high: row.high ?? row.mean, colour: colour(row.e), dash: dash(row.e), text: fixed(row.mean), interval: interval(row.low, row.high), users: whole(row.n), alert: "" }));
    // Without a bad day, the axis of the layers that mark them would have no end.
    const edit = (spec) => { if (!bad.length) spec.layer = spec.layer.slice(0, -2); wholeDays(spec, dates); };
    if (made.length) draw(grid, "trend", [...made, ...bad.map(({ date, text }) => ({ date, day: date, alert: text }))], { heading: data.metrics[m].label, small: direction(m), about: `${data.metrics[m].label} over time`, edit, legend: [...new Set(made.map((row) => row.e))].sort((a, b) => a - b) });
  });
  numbers("trend", (place) => {
    table(place, `Means by evaluation date${held("trend", trend)}`, [names("date", (row) => row.date), ...meanColumns([])], trend);
    if (bad.length) badDayTable(place, bad);
  });
}

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
