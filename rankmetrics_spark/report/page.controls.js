// What a person chooses, and the start.

function render() {
  for (const view of views) view.finalize();
  views = [];
  for (const chart of undrawn.keys()) watcher?.unobserve(chart);
  undrawn.clear();
  for (const part of [differences, meansByCutoff, overTime, distribution, bySegment]) part();
  return drawAll();
}

const updates = [];
const refresh = () => { updates.forEach((update) => update()); render(); };
function toggle(set, at) { if (!set.delete(at)) set.add(at); refresh(); }
function toggleMetric(m) {
  toggle(chosen.metrics, m);
  section("differences").querySelector(`.by-metric th:nth-child(${byRole.indexOf(m) + 2}) button`)?.focus();
}
function chip(text, set, at, paint) {
  const dot = make("i", { ariaHidden: "true" });
  const made = make("button", { type: "button", className: "chip", title: text.length > 24 ? text : "", onclick: () => toggle(set, at) }, ...(paint ? [dot] : []), make("bdi", {}, short(text)));
  const update = () => { made.setAttribute("aria-pressed", String(set.has(at))); if (paint) dot.style.background = set.has(at) ? colour(at) : "var(--line)"; };
  updates.push(update);
  update();
  return made;
}
function controls() {
  const bar = document.getElementById("controls");
  if (!data.metrics.length) return;
  const field = (text, set, texts, order, paint, noun) => make("fieldset", {}, make("legend", {}, text),
    ...(texts.length <= DRAWN ? order.map((at) => chip(texts[at], set, at, paint)) : [picker(set, texts, order, noun)]));
  bar.append(field("Experiments", chosen.experiments, data.experiments, [...data.experiments.keys()], true, "experiment"));
  if (data.metrics.length > 1) bar.append(field("Metrics", chosen.metrics, data.metrics.map((metric) => metric.label), byRole, false, "metric"));
  const focus = make("select", { "aria-label": "Experiment that stands out" }, make("option", {}, "none"), ...data.experiments.map((text) => make("option", {}, short(text))));
  focus.selectedIndex = chosen.focus + 1;
  focus.addEventListener("change", () => { chosen.focus = focus.selectedIndex - 1; if (chosen.focus >= 0) chosen.experiments.add(chosen.focus); refresh(); });
  if (data.experiments.length > 2) bar.append(make("fieldset", {}, make("legend", {}, "Highlight"), focus));
  bar.hidden = false;
  // A section that is scrolled to begins below the bar, however many lines it has.
  const room = () => { document.documentElement.style.scrollPaddingTop = getComputedStyle(bar).position === "sticky" ? `${bar.offsetHeight + 16}px` : ""; };
  new ResizeObserver(room).observe(bar);
}
function picker(set, texts, order, noun) {
  const summary = make("summary"), list = make("ul"), search = make("input", { type: "search", placeholder: `Find ${noun === "metric" ? "a" : "an"} ${noun}`, "aria-label": `Find ${noun === "metric" ? "a" : "an"} ${noun}` });
  const boxes = order.map((at) => {
    const box = make("input", { type: "checkbox", onchange: () => { if (box.checked) set.add(at); else set.delete(at); refresh(); } });
    list.append(make("li", {}, make("label", {}, box, bdi(short(texts[at])))));
    return box;
  });
  const update = () => {
    boxes.forEach((box, i) => { box.checked = set.has(order[i]); });
    summary.textContent = `${set.size} of ${whole(texts.length)} shown`;
  };
  search.addEventListener("input", () => [...list.children].forEach((item, i) => { item.hidden = !texts[order[i]].toLowerCase().includes(search.value.toLowerCase()); }));
  const fill = (text, n) => make("button", { type: "button", className: "quiet", onclick: () => { set.clear(); order.slice(0, n).forEach((at) => set.add(at)); refresh(); } }, text);
  updates.push(update);
  update();
  const n = noun === "metric" ? METRICS : DRAWN;
  const made = make("details", { className: `picker ${noun}` }, summary, make("div", {}, search, list, make("div", { className: "row" }, fill(`First ${n}`, n), fill("All", Infinity), fill("None", 0))));
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
/** A link to each section that is there. */
function contents() {
  const list = document.getElementById("contents");
  const titles = [...document.querySelectorAll("main > section:not([hidden]) > h2")];
  list.replaceChildren(...titles.map((title) => make("li", {}, make("a", { href: `#${title.id}` }, (title.firstChild.textContent ?? "").trim()))));
  const menu = list.closest("details");
  menu.hidden = titles.length < 3;
  menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); } });
  document.addEventListener("click", (event) => { if (event.target.closest("#contents a") || !menu.contains(event.target)) menu.open = false; });
}
/** The tables of candidates and the leaderboards stand in the page; a search hides the lines of others. */
for (const forest of document.querySelectorAll(".forest")) {
  const lines = [...forest.querySelectorAll("tbody tr")];
  if (lines.length <= 3) continue;
  const input = make("input", { type: "search", placeholder: "Find an experiment", "aria-label": "Find an experiment in the table" });
  const text = new Map(lines.map((line) => [line, `${line.querySelector("bdi").title} ${line.textContent}`.toLowerCase()]));
  input.addEventListener("input", () => lines.forEach((line) => { line.hidden = !text.get(line).includes(input.value.toLowerCase()); }));
  forest.before(make("div", { className: "tools" }, input));
}
// The table of differences is printed with the page; the others are for those who opened them.
let closed = [];
addEventListener("beforeprint", () => {
  // Vega draws in steps that all end before the print begins, so no chart is left blank.
  for (const chart of [...undrawn.keys()]) start(chart);
  closed = [...document.querySelectorAll("#differences details.numbers:not([open])")];
  for (const details of closed) { details.open = true; details.ontoggle?.(); }
});
addEventListener("afterprint", () => { for (const details of closed) details.open = false; closed = []; });

theme();
controls();
furtherTests();
checksTable();
render();
contents();
if (!document.getElementById("controls").hidden) {
  const touch = matchMedia("(hover: none)").matches;
  document.getElementById("controls").after(make("p", { className: "hint" }, touch ? "Tap a mark for its numbers." : "Hover over a mark for its numbers. Drag a chart to move it, hold Shift and scroll to zoom, double-click to go back."));
}
