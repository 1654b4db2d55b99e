"use strict";
// Names from the data reach the page as text nodes and as values of charts only, never as markup.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("data"), charts = read("charts");
  /** Control characters of a name are shown, not obeyed: they could turn the text around. */
  const plain = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
  data.experiments = data.experiments.map(plain);
  data.segments = data.segments.map(plain);
  const DRAWN = 10, LINES = 40, ROWS = 50, LONG = 60;
  const SAYS = { better: "better", worse: "worse", open: "no difference shown", doubtful: "not to be trusted" };

  // ---- rows and words

  const rowsOf = (table) => table.e.map((_, i) => Object.fromEntries(Object.entries(table).map(([k, v]) => [k, v[i]])));
  const means = rowsOf(data.means), compared = rowsOf(data.compared), trend = rowsOf(data.trend), developed = rowsOf(data.overTime);
  const { steps: [STEPS], ...userTable } = data.users;
  const users = rowsOf(userTable);
  const name = (place) => data.experiments[place];
  const segment = (row) => data.segments[row.s];
  const label = (row) => data.metrics[row.m].label;
  const everyone = (row) => segment(row) === "all";
  const several = data.baselines.length > 1;
  const short = (text) => text.length > LONG ? text.slice(0, LONG - 20) + "…" + text.slice(-16) : text;
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

  // The accent is for the experiment that the answer calls better; without one, nothing has it until somebody chooses.
  const best = data.leader;
  const drawn = new Set([...data.experiments.keys()].slice(0, DRAWN));
  if (best >= 0) drawn.add(best);
  const chosen = { metrics: new Set(data.metrics.keys()), experiments: drawn, focus: best, pair: 0, kind: 0 };
  const shown = (row) => chosen.metrics.has(row.m) && chosen.experiments.has(row.e);
  const GREYS = ["var(--faint)", "var(--soft)"];
  const colour = (place) => place === chosen.focus ? "var(--accent)" : data.baselines.includes(place) && !several ? "var(--ink)" : GREYS[place % 2];

  // ---- elements

  function make(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (key in made && key !== "list") made[key] = value; else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }
  const bdi = (text) => make("bdi", { className: "id", title: text.length > LONG ? text : "" }, text);
  const section = (id) => document.getElementById(id);

  let drawings = [];
  /** Draws one chart; a reader of the screen hears its name, and finds the numbers in the table below. */
  function draw(parent, template, rows, heading, small, about, unit, domain) {
    const spec = structuredClone(charts[template]);
    spec.datasets = { ...spec.datasets, rows };
    if (template === "forest") stretch(spec, rows, unit, domain);
    else for (const parameter of spec.params) if (parameter.name === "suffix") parameter.value = unit ?? "";
    // The first layer are the bad days; without one, its axis would have no end.
    if (template === "byDate" && !rows.some((row) => row.state)) spec.layer = spec.layer.slice(1);
    if (template === "byDate") wholeDays(spec, rows.map((row) => row.label).sort());
    // Vega gives its own element a role and a name; they are for nobody.
    const place = make("div", { "aria-hidden": "true" });
    const chart = make("div", { className: "chart", role: "img", "aria-label": `${about}. The numbers are in the table below.` }, place);
    parent.append(make("figure", {}, make("h3", {}, heading, small ? make("small", {}, small) : ""), chart));
    const embedded = vegaEmbed(place, spec, { actions: false, renderer: "svg", config: { aria: false }, tooltip: { theme: "custom" } });
    drawings.push(embedded.then((made) => made.view));
  }

  /** One line per row, on a scale that all charts of a section share. */
  function stretch(spec, rows, unit, domain) {
    for (const parameter of spec.params) if (parameter.name === "suffix") parameter.value = unit ?? "";
    for (const layer of spec.layer) if (domain && layer.encoding.x?.field === "value") layer.encoding.x.scale = { domain, nice: true, zero: false };
    spec.height = 26 * rows.length;
  }
  /** A label for each day, or for every second one, and so on. */
  function wholeDays(spec, dates) {
    const days = (Date.parse(dates.at(-1)) - Date.parse(dates[0])) / 864e5;
    for (const { encoding } of spec.layer) if (encoding.x?.field === "date") encoding.x.axis.tickCount = { interval: "day", step: Math.max(1, Math.ceil(days / 7)) };
  }
  function domainOf(rows, ends) {
    const values = [0, ...rows.flatMap((row) => ends(row).filter((x) => x !== null))], low = Math.min(...values), high = Math.max(...values), room = 0.04 * (high - low || 1);
    return [low < 0 ? low - room : 0, high > 0 ? high + room : 0];
  }
  const spans = (row) => { const { value, low, high } = span(row, true); return [value, low, high]; };

  /** A table that sorts, filters and grows. Columns: title, value (to sort by), show (an element or text), text. */
  function table(parent, caption, columns, rows) {
    let order = null, down = false, words = "", limit = ROWS;
    const body = make("tbody"), count = make("span", { role: "status" });
    const more = make("button", { type: "button", className: "quiet", onclick: () => { limit = Infinity; fill(); } });
    const filter = make("input", { type: "search", placeholder: "Filter", "aria-label": `Filter: ${caption}` });
    filter.addEventListener("input", () => { words = filter.value.toLowerCase(); fill(); });
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
    const text = new Map(rows.map((row) => [row, columns.filter((c) => c.left).map((c) => c.value(row)).join(" ").toLowerCase()]));
    function fill() {
      let found = rows.filter((row) => words.split(" ").every((word) => text.get(row).includes(word)));
      if (order !== null) found = [...found].sort((a, b) => (down ? -1 : 1) * compare(columns[order].value(a), columns[order].value(b)));
      body.replaceChildren(...found.slice(0, limit).map((row) => make("tr", {}, ...columns.map((column, i) => cell(column, row, i)))));
      count.textContent = found.length > limit ? `${limit} of ${whole(found.length)} rows` : `${whole(found.length)} rows`;
      more.textContent = `Show all ${whole(found.length)}`;
      more.hidden = found.length <= limit;
    }
    fill();
    parent.append(
      make("div", { className: "tools" }, filter, count, more),
      make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
        make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...heads)), body)));
    return () => { limit = Infinity; fill(); };
  }
  function cell(column, row, i) {
    const text = column.show(row), head = i === 0;
    const made = make(head ? "th" : "td", { className: column.left ? (head ? "" : "id") : "n" }, text instanceof Node ? text : column.left ? bdi(text) : text);
    if (head) made.scope = "row";
    return made;
  }
  const compare = (a, b) => a === null ? 1 : b === null ? -1 : typeof a === "number" ? a - b : a.localeCompare(b);
  const column = (title, value, show = value) => ({ title, value, show: (row) => { const x = show(row); return x === null ? "–" : typeof x === "number" ? whole(x) : x; } });
  const names = (title, value) => ({ ...column(title, value), left: true });

  const opened = new Map();
  /** The table of a section is made when somebody opens it. */
  function numbers(id, build) {
    const details = section(id).querySelector(".numbers");
    details.replaceChildren(details.firstElementChild);
    opened.set(details, null);
    const fill = () => { if (details.open && !opened.get(details)) opened.set(details, build(details)); };
    details.ontoggle = fill;
    fill();
  }

  // ---- the sections

  const ARROWS = { better: "▲ ", worse: "▼ ", open: "", doubtful: "" }, CLASSES = { better: "up", worse: "down" };
  /** A column has one unit: the difference and its interval as they are, and in percent where a row can be told so. */
  const changeColumns = [
    column("change", (row) => isPercentage(row) ? row.rel : null, (row) => isPercentage(row) ? changeText(span(row, true)) : "–"),
    column("interval in %", (row) => isPercentage(row) ? row.relLow : null, (row) => isPercentage(row) ? spanText(span(row, true)) : "–"),
  ];
  const differenceColumns = (more) => [
    names("experiment", (row) => name(row.e)),
    ...(several ? [names("against", (row) => name(row.b))] : []),
    ...more,
    names("metric", label),
    column("baseline", (row) => row.meanB, (row) => fixed(row.meanB)),
    column("candidate", (row) => row.meanC, (row) => fixed(row.meanC)),
    column("difference", (row) => row.d, (row) =>
      make("span", { className: CLASSES[row.state] ?? "flat" }, ARROWS[row.state] + changeText(span(row, false)))),
    column("interval", (row) => row.low, (row) => spanText(span(row, false))),
    ...changeColumns,
    column("p, corrected", (row) => row.p, (row) => row.said ?? "–"),
    column("users", (row) => row.n),
    names("verdict", (row) => row.note ? `${SAYS[row.state]}: ${row.note}` : SAYS[row.state]),
  ];
  function line(row, text, inPercent) {
    const drawn = span(row, inPercent), { value, low, high } = drawn, state = row.state;
    const ink = state === "better" ? "var(--accent)" : state === "worse" ? "var(--ink)" : "var(--faint)";
    return { label: short(text), name: short(pair(row)), metric: label(row), segment: segment(row), value, low: low ?? value, high: high ?? value, stroke: ink,
      fill: state === "worse" || state === "doubtful" ? "var(--paper)" : ink, difference: changeText(drawn), users: whole(row.n), p: row.said ?? "–", says: SAYS[state],
      interval: spanText(drawn) };
  }
  /** Charts share a scale where they share a unit: percent. */
  const sharedDomain = (rows) => rows.length && allPercentages(rows) ? domainOf(rows, spans) : null;
  const unique = (rows) => {
    // Labels are places on an axis: names that were shortened to the same text must stay apart.
    const seen = new Map();
    return rows.map((row) => { const n = (seen.get(row.label) ?? 0) + 1; seen.set(row.label, n); return n > 1 ? { ...row, label: `${row.label} (${n})` } : row; });
  };
  const KEY = "A filled accent mark is better, a hollow mark is worse, a grey mark shows no difference";
  const against = () => several ? "pair by pair" : `difference to ${short(name(data.baselines[0]))}`;

  function panels(id, groups, paint) {
    const grid = section(id).querySelector(".panels");
    grid.replaceChildren();
    grid.classList.toggle("one", groups.length === 1);
    for (const group of groups) paint(grid, group);
  }
  const metricsShown = () => [...data.metrics.keys()].filter((m) => chosen.metrics.has(m));
  const limited = () => chosen.experiments.size < data.experiments.length ? ` ${chosen.experiments.size} of ${whole(data.experiments.length)} experiments are drawn.` : "";
  /** How many of the rows of a section fit into this page; nothing where all do. */
  const held = (id, rows) => rows.length < data.totals[id] ? ` (${whole(rows.length)} of ${whole(data.totals[id])} rows; the others are in the Parquet tables)` : "";
  const heldNote = (id, rows) => rows.length < data.totals[id] ? ` This page holds ${whole(rows.length)} of ${whole(data.totals[id])} rows.` : "";
  const counted = (rows) => { const n = new Set(rows.map((row) => row.e)).size; return n < data.experiments.length ? ` It has ${whole(n)} of ${whole(data.experiments.length)} experiments.` : ""; };
  const say = (id, text) => { section(id).querySelector(".intro").textContent = text; section(id).hidden = false; };

  function differences() {
    const rows = compared.filter(everyone);
    if (!rows.length) return;
    const level = (data.confidence ? `${data.confidence} intervals` : "intervals") + (data.valid ? `, ${data.valid}` : "") + (data.widened ? ", widened for the number of comparisons as p is" : "");
    say("differences", `Each candidate against ${several ? "each baseline" : short(name(data.baselines[0]))}, with ${level}. ${KEY}.${limited()}${heldNote("differences", rows)}`);
    const drawnRows = rows.filter(shown), domain = sharedDomain(drawnRows);
    panels("differences", metricsShown(), (grid, m) => {
      const mine = drawnRows.filter((row) => row.m === m), inPercent = allPercentages(mine), size = (row) => span(row, inPercent).value ?? -Infinity;
      const found = mine.sort((a, b) => size(b) - size(a)).slice(0, several ? LINES : Infinity);
      if (found.length) draw(grid, "forest", unique(found.map((row) => line(row, pair(row), inPercent))), data.metrics[m].label, `${against()}; ${data.metrics[m].direction}`, `Differences on ${data.metrics[m].label}`, inPercent ? " %" : "", domain);
    });
    numbers("differences", (place) => table(place, `Differences for all users${held("differences", rows)}`, differenceColumns([]), rows));
  }

  function meansByCutoff() {
    const rows = means.filter(everyone);
    if (!rows.length) return;
    say("means", `${data.overLists ? "Mean over lists, whose errors are by user," : "Mean over users"} with its ${data.confidence} interval.${limited()}${heldNote("means", rows)} Axes may not start at 0.`);
    const families = [...new Set(metricsShown().map((m) => data.metrics[m].family))];
    panels("means", families, (grid, family) => {
      const found = rows.filter((row) => shown(row) && data.metrics[row.m].family === family && row.mean !== null);
      const places = [...chosen.experiments].sort((a, b) => a - b);
      const made = found.map((row) => ({ cut: data.metrics[row.m].cut ?? "all", place: places.indexOf(row.e), name: short(name(row.e)), metric: label(row), mean: row.mean,
        low: row.low ?? row.mean, high: row.high ?? row.mean, colour: colour(row.e), text: fixed(row.mean), interval: interval(row.low, row.high), users: whole(row.n) })).sort((a, b) => (a.cut === "all") - (b.cut === "all") || a.cut - b.cut || a.place - b.place);
      if (made.length) draw(grid, "cutoffs", made, family, "", `Means of ${family} by cut-off`);
    });
    numbers("means", (place) => table(place, `${data.overLists ? "Means over the lists of all users" : "Means over all users"}${held("means", rows)}`, [
      names("experiment", (row) => name(row.e)), names("metric", label), column("mean", (row) => row.mean, (row) => fixed(row.mean)),
      column("interval", (row) => row.low, (row) => interval(row.low, row.high)), column("users", (row) => row.n), column("users with a relevant item", (row) => row.relevant),
    ], rows));
  }

  /** The upper edge of a step; the users of step -1 are at the lowest value itself. */
  const edgeOf = (row) => row.low + (row.step + 1) * (row.high - row.low) / STEPS;
  function distribution() {
    if (!users.length) return;
    say("users", `Share of the users at or below each value. The lower a line, the more users have high values.${limited()}${counted(users)}${heldNote("users", users)}`);
    const sorted = [...users].sort((a, b) => a.step - b.step), rows = [];
    const totals = new Map(), key = (row) => `${row.e} ${row.m}`;
    for (const row of sorted) totals.set(key(row), (totals.get(key(row)) ?? 0) + row.n);
    panels("users", metricsShown(), (grid, m) => {
      const made = [];
      for (const place of chosen.experiments) {
        const found = sorted.filter((row) => row.m === m && row.e === place);
        if (!found.length) continue;
        const { low, high } = found[0], total = totals.get(key(found[0])), counts = new Map(found.map((row) => [row.step, row.n]));
        let sum = 0;
        for (let step = -1; step < STEPS; step++) {
          sum += counts.get(step) ?? 0;
          const edge = edgeOf({ step, low, high });
          made.push({ name: short(name(place)), metric: data.metrics[m].label, edge, share: sum / total, colour: colour(place), weight: place === chosen.focus ? 2.6 : 1.6,
            upto: fixed(edge, 3), text: `${(100 * sum / total).toFixed(1)} %`, users: `${whole(sum)} of ${whole(total)}` });
        }
      }
      if (made.length) draw(grid, "distribution", made, data.metrics[m].label, "users at or below", `Distribution of ${data.metrics[m].label} over users`);
    });
    numbers("users", (place) => table(place, `Users by value, in ${STEPS} steps${held("users", users)}`, [
      names("experiment", (row) => name(row.e)), names("metric", label), column("value up to", edgeOf, (row) => fixed(edgeOf(row), 3)),
      column("users", (row) => row.n), column("share", (row) => row.n / totals.get(key(row)), (row) => `${(100 * row.n / totals.get(key(row))).toFixed(1)} %`),
    ], users));
  }

  function bySegment() {
    const rows = compared.filter((row) => !everyone(row));
    const averages = means.filter((row) => !everyone(row));
    if (!rows.length && !averages.length) return;
    if (!rows.length) return segmentMeans(averages);
    const pairs = [...new Map(rows.map((row) => [pair(row), row])).values()].sort((a, b) => (b.e === chosen.focus) - (a.e === chosen.focus) || a.e - b.e);
    const one = pairs[Math.min(chosen.pair, pairs.length - 1)];
    const mine = rows.filter((row) => row.e === one.e && row.b === one.b);
    const sizes = [...new Map(mine.map((row) => [row.s, row.n])).entries()].sort((a, b) => b[1] - a[1]);
    const drawnSegments = new Set(sizes.slice(0, LINES).map(([s]) => s));
    const left = sizes.length > LINES ? ` The ${LINES} segments with the most users of ${whole(sizes.length)} are drawn.` : "";
    say("segments", `One candidate by segment, with all users first. Small segments vary by chance${data.valid ? `; intervals are ${data.valid}` : ""}.${left}${heldNote("segments", rows)}`);
    choose("segments", "Candidate", pairs.map(pair), chosen.pair, (i) => { chosen.pair = i; bySegment(); });
    const domain = sharedDomain(compared.filter((row) => row.e === one.e && row.b === one.b && chosen.metrics.has(row.m) && (everyone(row) || drawnSegments.has(row.s))));
    panels("segments", metricsShown(), (grid, m) => {
      const all = compared.filter((row) => everyone(row) && row.m === m && row.e === one.e && row.b === one.b);
      const found = [...all, ...mine.filter((row) => row.m === m && drawnSegments.has(row.s)).sort((a, b) => a.s - b.s)];
      const inPercent = allPercentages(found);
      if (found.length) draw(grid, "forest", unique(found.map((row) => line(row, everyone(row) ? "all users" : segment(row), inPercent))), data.metrics[m].label, several ? "" : against(), `Differences on ${data.metrics[m].label} by segment`, inPercent ? " %" : "", domain);
    });
    numbers("segments", (place) => table(place, `Differences by segment${held("segments", rows)}`, differenceColumns([names("segment", segment)]), rows));
  }
  function segmentMeans(rows) {
    const places = [...new Set(rows.map((row) => row.e))];
    const one = places[Math.min(chosen.pair, places.length - 1)];
    say("segments", "Means of one experiment by segment. Nothing was compared." + heldNote("segmentMeans", rows));
    choose("segments", "Experiment", places.map(name), chosen.pair, (i) => { chosen.pair = i; bySegment(); });
    panels("segments", metricsShown(), (grid, m) => {
      const found = means.filter((row) => row.m === m && row.e === one && row.mean !== null).sort((a, b) => a.s - b.s).slice(0, LINES);
      const made = found.map((row) => ({ label: short(everyone(row) ? "all users" : segment(row)), name: short(name(one)), metric: label(row), segment: segment(row), value: row.mean, low: row.low ?? row.mean,
        high: row.high ?? row.mean, stroke: "var(--ink)", fill: "var(--ink)", difference: fixed(row.mean), interval: interval(row.low, row.high), p: "–", users: whole(row.n), says: "not compared" }));
      if (made.length) draw(grid, "forest", unique(made), data.metrics[m].label, "", `Means of ${data.metrics[m].label} by segment`, "");
    });
    numbers("segments", (place) => table(place, `Means by segment${held("segmentMeans", rows)}`, [
      names("experiment", (row) => name(row.e)), names("segment", segment), names("metric", label), column("mean", (row) => row.mean, (row) => fixed(row.mean)),
      column("interval", (row) => row.low, (row) => interval(row.low, row.high)), column("users", (row) => row.n),
    ], rows));
  }
  function choose(id, text, options, at, then) {
    const old = section(id).querySelector(".tools.choice");
    const select = make("select", { onchange: () => then(select.selectedIndex) }, ...options.map((option) => make("option", {}, short(option))));
    select.selectedIndex = at;
    const made = make("div", { className: "tools choice" }, make("label", {}, `${text} `, select));
    const focused = old?.contains(document.activeElement);
    if (old) old.replaceWith(made); else section(id).querySelector(".intro").after(made);
    if (focused) select.focus();
  }

  // ---- over time

  const KINDS = { cumulative: "up to each day", day: "per day", days_since_first: "by days since a user's first date" };
  const SHADES = { warned: 0.16, missing: 0.3, failed: 0.45 };
  const STATES = { failed: "the run failed", warned: "the run warned", missing: "nothing is published" };
  const BANDS = 3;
  const noon = (date, days) => new Date(Date.parse(`${date}T12:00:00Z`) + days * 864e5).toISOString();
  /** The dates of a section, and the days among them that need a word. */
  const badDays = (dates) => data.alerts.filter(({ date }) => date >= dates[0]);
  const badDayTable = (place, bad) => table(place, "Days that failed, warned or are missing", [
    names("date", (row) => row.date), names("what", (row) => STATES[row.state]), names("why", (row) => row.text)], bad);

  function overTime() {
    const kinds = Object.keys(KINDS).filter((kind) => new Set(developed.filter((row) => row.kind === kind).map((row) => row.label)).size > 1);
    if (!kinds.length) return meansOverTime();
    const kind = kinds[Math.min(chosen.kind, kinds.length - 1)], byDate = kind !== "days_since_first";
    const rows = developed.filter((row) => row.kind === kind).sort((a, b) => byDate ? (a.label > b.label) - (a.label < b.label) : a.label - b.label);
    const dates = [...new Set(rows.map((row) => row.label))].sort(), bad = byDate ? badDays(dates) : [];
    const about = { cumulative: "Difference over all days up to each day", day: "Difference of each day by itself", days_since_first: "Difference of all users by how many days after their first date it is" }[kind];
    const there = Object.keys(SHADES).filter((state) => bad.some((each) => each.state === state)).map((state) => STATES[state]);
    const shaded = bad.length ? ` Grey days${there.length > 1 ? ", from light to dark" : ""}: ${there.join(", ")}.` : "";
    const series = new Set(rows.filter(shown).map(pair)), thin = series.size > BANDS ? " Intervals are drawn for the highlighted experiment; hover over a point for the others." : "";
    say("trend", `${about}, with ${data.confidence} intervals${kind === "cumulative" && data.validOverTime ? `, ${data.validOverTime}` : ""}; 0 is ${several ? "no difference" : `no difference to ${short(name(data.baselines[0]))}`}.${shaded}${thin}${limited()}${heldNote("overTime", developed)}`);
    if (kinds.length > 1) choose("trend", "Show the difference", kinds.map((each) => KINDS[each]), kinds.indexOf(kind), (i) => { chosen.kind = i; overTime(); });
    panels("trend", metricsShown(), (grid, m) => {
      const mine = rows.filter((row) => shown(row) && row.m === m && row.d !== null), inPercent = allPercentages(mine);
      const points = mine.map((row) => {
        const drawn = span(row, inPercent), { value, low, high } = drawn, wide = low !== null && (series.size <= BANDS || row.e === chosen.focus);
        // Up to each day, intervals are of the same users and more; those of single days are apart.
        const band = wide && kind === "cumulative" ? 0.14 : 0, rule = wide && !band ? 0.45 : 0, last = row.label === mine.filter((each) => each.e === row.e && each.b === row.b).at(-1).label;
        return { date: row.label, day: Number(row.label), label: row.label, name: short(pair(row)), metric: label(row), value, low: low ?? value, high: high ?? value, band, rule, colour: colour(row.e),
          end: last && (series.size <= BANDS || row.e === chosen.focus) ? short(pair(row)) : "",
          text: changeText(drawn), interval: spanText(drawn), means: `${fixed(row.meanB)} → ${fixed(row.meanC)}`, users: whole(row.n) };
      });
      const grey = bad.map(({ date, state, text }) => ({ state, label: date, from: noon(date, -1), to: noon(date, 0), shade: SHADES[state], alert: `${STATES[state]}: ${text}` }));
      if (points.length) draw(grid, byDate ? "byDate" : "byDay", [...grey, ...points], data.metrics[m].label, `${against()}; ${data.metrics[m].direction}`, `Differences on ${data.metrics[m].label} ${KINDS[kind]}`, inPercent ? " %" : "");
    });
    numbers("trend", (place) => {
      const all = table(place, `Differences ${KINDS[kind]}${held("overTime", developed)}`, [
        byDate ? names("date", (row) => row.label) : column("days", (row) => Number(row.label), (row) => row.label),
        names("experiment", (row) => name(row.e)), ...(several ? [names("against", (row) => name(row.b))] : []), names("metric", label),
        column("baseline", (row) => row.meanB, (row) => fixed(row.meanB)), column("candidate", (row) => row.meanC, (row) => fixed(row.meanC)),
        column("difference", (row) => row.d, (row) => changeText(span(row, false))),
        column("interval", (row) => row.low, (row) => spanText(span(row, false))), ...changeColumns, column("users", (row) => row.n),
      ], rows);
      if (!bad.length) return all;
      const more = badDayTable(place, bad);
      return () => { all(); more(); };
    });
  }
  /** Nothing was compared: the means by date. */
  function meansOverTime() {
    const dates = [...new Set(trend.map((row) => row.date))].sort();
    if (dates.length < 2) return;
    const bad = badDays(dates), note = bad.length ? " A triangle marks a day whose run failed or warned, or that is missing." : "";
    say("trend", `Mean of each evaluation date with its interval.${note}${limited()}${counted(trend)}${heldNote("trend", trend)}`);
    panels("trend", metricsShown(), (grid, m) => {
      const made = trend.filter((row) => shown(row) && row.m === m && row.mean !== null).map((row) => ({ date: row.date, day: row.date, name: short(name(row.e)), metric: label(row), mean: row.mean,
        low: row.low ?? row.mean, high: row.high ?? row.mean, colour: colour(row.e), text: fixed(row.mean), interval: interval(row.low, row.high), users: whole(row.n), alert: "" }));
      if (made.length) draw(grid, "trend", [...made, ...bad.map(({ date, text }) => ({ date, day: date, alert: text }))], data.metrics[m].label, "", `${data.metrics[m].label} over time`);
    });
    numbers("trend", (place) => {
      const all = table(place, `Means by evaluation date${held("trend", trend)}`, [
        names("date", (row) => row.date), names("experiment", (row) => name(row.e)), names("metric", label), column("mean", (row) => row.mean, (row) => fixed(row.mean)),
        column("interval", (row) => row.low, (row) => interval(row.low, row.high)), column("users", (row) => row.n),
      ], trend);
      if (!bad.length) return all;
      const more = badDayTable(place, bad);
      return () => { all(); more(); };
    });
  }

  function render() {
    Promise.all(drawings).then((views) => views.forEach((view) => view.finalize()));
    drawings = [];
    for (const part of [differences, meansByCutoff, overTime, distribution, bySegment]) part();
    document.documentElement.dataset.drawn = "";
    const mine = drawings;
    Promise.all(mine).then(() => { if (mine === drawings) document.documentElement.dataset.drawn = String(mine.length); });
  }

  // ---- the controls

  function chip(text, set, place, paint) {
    const dot = make("i", { ariaHidden: "true" });
    const made = make("button", { type: "button", className: "chip", title: text.length > 24 ? text : "" }, ...(paint ? [dot] : []), make("bdi", {}, short(text)));
    const update = () => { made.setAttribute("aria-pressed", String(set.has(place))); if (paint) dot.style.background = set.has(place) ? colour(place) : "var(--line)"; };
    made.addEventListener("click", () => { if (!set.delete(place)) set.add(place); update(); render(); });
    update();
    return { made, update };
  }
  function controls() {
    const bar = document.getElementById("controls");
    if (!data.metrics.length) return;
    const updates = [];
    const chips = (set, texts, paint) => texts.map((text, place) => { const { made, update } = chip(text, set, place, paint); updates.push(update); return made; });
    const experiments = data.experiments.length <= DRAWN ? chips(chosen.experiments, data.experiments, true) : [picker(updates)];
    bar.append(make("fieldset", {}, make("legend", {}, "Experiments"), ...experiments));
    if (data.metrics.length > 1) bar.append(make("fieldset", {}, make("legend", {}, "Metrics"), ...chips(chosen.metrics, data.metrics.map((metric) => metric.label), false)));
    const focus = make("select", { "aria-label": "Experiment in the accent colour" }, make("option", {}, "none"), ...data.experiments.map((text) => make("option", {}, short(text))));
    focus.selectedIndex = chosen.focus + 1;
    focus.addEventListener("change", () => { chosen.focus = focus.selectedIndex - 1; if (chosen.focus >= 0) chosen.experiments.add(chosen.focus); updates.forEach((update) => update()); render(); });
    if (data.experiments.length > 2) bar.append(make("fieldset", {}, make("legend", {}, "Highlight"), focus));
    bar.hidden = false;
  }
  function picker(updates) {
    const summary = make("summary"), list = make("ul"), search = make("input", { type: "search", placeholder: "Find an experiment", "aria-label": "Find an experiment" });
    const boxes = data.experiments.map((text, place) => {
      const box = make("input", { type: "checkbox", onchange: () => { if (box.checked) chosen.experiments.add(place); else chosen.experiments.delete(place); update(); render(); } });
      list.append(make("li", {}, make("label", {}, box, bdi(short(text)))));
      return box;
    });
    const update = () => {
      boxes.forEach((box, place) => { box.checked = chosen.experiments.has(place); });
      summary.textContent = `${chosen.experiments.size} of ${whole(data.experiments.length)} shown`;
    };
    search.addEventListener("input", () => [...list.children].forEach((item, place) => { item.hidden = !data.experiments[place].toLowerCase().includes(search.value.toLowerCase()); }));
    const set = (text, n) => make("button", { type: "button", className: "quiet", onclick: () => { chosen.experiments.clear(); for (let i = 0; i < Math.min(n, boxes.length); i++) chosen.experiments.add(i); update(); render(); } }, text);
    updates.push(update);
    update();
    const made = make("details", { className: "picker" }, summary, make("div", {}, search, list, make("div", { className: "row" }, set(`First ${DRAWN}`, DRAWN), set("All", Infinity), set("None", 0))));
    made.addEventListener("keydown", (event) => { if (event.key === "Escape") { made.open = false; summary.focus(); } });
    document.addEventListener("click", (event) => { if (!made.contains(event.target)) made.open = false; });
    return made;
  }
  function theme() {
    const button = document.getElementById("theme"), root = document.documentElement;
    const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const update = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `${button.textContent} colours`); };
    button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; update(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
    button.hidden = false;
    update();
  }
  // A printed page has no tables to open.
  let closed = [];
  addEventListener("beforeprint", () => {
    const found = [...document.querySelectorAll("details.numbers:not([open])")];
    closed = [...closed, ...found];
    for (const details of found) { details.open = true; details.ontoggle?.(); }
  });
  addEventListener("afterprint", () => { for (const details of closed) details.open = false; closed = []; });

  theme();
  controls();
  render();
  const hint = make("p", { className: "hint" }, "Hover over a mark for its numbers. Drag a chart to move it, hold Shift and scroll to zoom, double-click to go back.");
  if (!document.getElementById("controls").hidden) document.getElementById("controls").after(hint);
})();
