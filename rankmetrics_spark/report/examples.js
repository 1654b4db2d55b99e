"use strict";
// Names from the data reach the page as text nodes only, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("examples-data").textContent);
  const texts = data.texts;
  const named = ([m, e, u, before, after, size, kind]) => ({ m, e, u, before, after, size, kind });
  const changes = data.changes.map(named), topics = data.topics.map(named);
  const candidates = [...new Set([...changes, ...topics].map((row) => row.e))];
  const place = (id) => document.getElementById(`examples-${id}`);
  const state = { m: 0, e: candidates[0], kind: changes.some((row) => row.kind === "loss") ? "loss" : "gain" };
  const digits = (x) => x === null ? "–" : x.toFixed(3);
  const signed = (x) => (Number(x.toFixed(3)) === 0 ? "" : x > 0 ? "+" : "−") + Math.abs(x).toFixed(3);

  function make(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) if (key in made) made[key] = value; else made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  const bdi = (text) => make("bdi", { className: "id" }, text);

  function select(label, key, options) {
    const box = make("select", {}, ...options.map(([value, text]) => make("option", { value, selected: value === state[key] }, text)));
    box.addEventListener("change", () => { state[key] = options[box.selectedIndex][0]; draw(); });
    return make("label", {}, label, box);
  }

  /** How an item of one list stands in the other one. */
  function moved(item, rank, other, isCandidate) {
    const there = other && other.rows.find((row) => row[1] === item);
    if (!other) return "";
    if (!there) return other.size > other.rows.length ? (isCandidate ? "▲ in" : "▼ out") : isCandidate ? "new" : "gone";
    const up = isCandidate ? there[0] - rank : rank - there[0];
    return up > 0 ? `▲ ${up}` : up < 0 ? `▼ ${-up}` : "same";
  }

  function listed(experiment, shown, other, isCandidate) {
    const caption = make("caption", {}, bdi(texts[experiment]));
    if (!shown) return make("div", {}, make("table", {}, caption, make("tbody", {}, make("tr", {}, make("td", {}, "no list")))));
    if (texts[shown.list]) caption.append(", list ", bdi(texts[shown.list]));
    if (shown.size > shown.rows.length) caption.append(` (the first ${shown.rows.length} of ${shown.size.toLocaleString("en-US")})`);
    const heads = ["rank", "item", "relevance", "moved"].map((text) => make("th", { scope: "col" }, text));
    const rows = shown.rows.map(([rank, item, grade, relevant]) => make("tr", { className: relevant ? "hit" : "" },
      make("th", { scope: "row" }, String(rank)), make("td", {}, bdi(texts[item])),
      make("td", {}, grade === null ? "not judged" : `${relevant ? "●" : "○"} ${Number(grade.toPrecision(4))}`),
      make("td", {}, moved(item, rank, other, isCandidate))));
    return make("div", {}, make("table", {}, caption, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
  }

  function user(row, isOpen) {
    const before = data.lists[`${data.baseline} ${row.u}`] ?? [], after = data.lists[`${row.e} ${row.u}`] ?? [];
    const body = make("div");
    const summary = make("summary", {}, `${data.unit} `, bdi(texts[row.u]), "  ", make("b", {}, `${digits(row.before)} → ${digits(row.after)}  (${signed(row.after - row.before)})`));
    const made = make("details", { className: "ex-user" }, summary, body);
    const fill = () => {
      if (body.childElementCount) return;
      for (let i = 0; i < Math.max(before.length, after.length); i++) {
        body.append(make("div", { className: "ex-pair" },
          listed(data.baseline, before[i], after[i], false), listed(row.e, after[i], before[i], true)));
      }
      const missed = data.missed[row.u];
      if (!missed) return;
      const items = missed.items.flatMap(([item, grade], i) => [i ? ", " : "", bdi(texts[item]), ` (${grade})`]);
      body.append(make("p", { className: "fine" }, `Relevant, and in no list: `, ...items, missed.n > missed.items.length ? ` and ${missed.n - missed.items.length} more` : ""));
    };
    made.addEventListener("toggle", fill);
    if (isOpen) { made.open = true; fill(); }
    return made;
  }

  /** One bar for each topic, the largest loss first. */
  function bars(rows, metric) {
    const space = "http://www.w3.org/2000/svg", height = 20;
    const width = Math.max(280, Math.min(place("topics").clientWidth, 900)), left = Math.min(200, Math.round(width * .3));
    const most = Math.max(...rows.map((row) => Math.abs(row.size)), 1e-12), middle = left + (width - left) / 2;
    const element = (tag, attributes, text) => {
      const made = document.createElementNS(space, tag);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      if (text !== undefined) made.textContent = text;
      return made;
    };
    const svg = element("svg", { width, height: rows.length * height, role: "img", "aria-label": `${metric.label}: the difference of each of ${rows.length}, from ${signed(rows[0].size)} to ${signed(rows.at(-1).size)}` });
    rows.forEach((row, i) => {
      const size = Math.abs(row.size) / most * ((width - left) / 2 - 50), isUp = row.size > 0, name = texts[row.u];
      const room = Math.floor(left / 7), short = name.length > room ? `${name.slice(0, room - 7)}…${name.slice(-6)}` : name;
      const group = element("g", {});
      group.append(element("title", {}, `${name}: ${digits(row.before)} → ${digits(row.after)}`),
        element("text", { x: left - 8, y: i * height + 14, "text-anchor": "end" }, short),
        element("rect", { x: isUp ? middle : middle - size, y: i * height + 5, width: size, height: height - 10, class: isUp !== metric.lower ? "up" : "down" }),
        element("text", { x: isUp ? middle + size + 4 : middle - size - 4, y: i * height + 14, "text-anchor": isUp ? "start" : "end" }, signed(row.size)));
      svg.append(group);
    });
    svg.append(element("line", { x1: middle, x2: middle, y1: 0, y2: rows.length * height }));
    return make("div", { className: "ex-topics", tabIndex: 0, role: "region", ariaLabel: `Difference of each, on ${metric.label}` }, svg);
  }

  function draw() {
    const of = (row) => row.m === state.m && row.e === state.e;
    const metric = data.metrics[state.m], rows = changes.filter((row) => of(row) && row.kind === state.kind), each = topics.filter(of);
    place("topics").replaceChildren(...(each.length ? [bars(each, metric)] : []));
    const none = make("p", { className: "intro" }, state.kind === "loss" ? "None lost on this metric." : "None gained on this metric.");
    place("users").replaceChildren(...(rows.length ? rows.map((row, i) => user(row, i === 0)) : [none]));
  }

  if (data.note) {
    place("intro").append(data.note);
    return;
  }
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
  place("choice").append(
    select("Metric", "m", data.metrics.map((metric, i) => [i, metric.label])),
    select(data.others ? "On the right" : "Candidate", "e", candidates.map((e) => [e, texts[e]])),
    select("Show", "kind", [["loss", "largest losses"], ["gain", "largest gains"]]));
  const count = (n) => n.toLocaleString("en-US");
  const part = changes.length < data.total ? ` ${count(changes.length)} of ${count(data.total)} changes are here.` : "";
  const best = data.ahead ? ", which is ahead" : ", which has the best mean";
  const [shown, all] = data.others ?? [];
  const other = !data.others ? "the candidate" : shown < all ? `one of the best ${count(shown)} of ${count(all)} others` : "another experiment";
  place("intro").append("Left is ", bdi(texts[data.baseline]), `${data.others ? best : ""}, right ${other}. Losses and gains are those of the one on the right. ● is relevant; “moved” says how many ranks it moved an item.${part}`);
  draw();
})();
