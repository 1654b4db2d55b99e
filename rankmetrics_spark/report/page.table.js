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
