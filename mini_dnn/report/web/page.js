"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip"), dialog = document.getElementById("variant");
const MOST_RADIOS = 6, NARROW = 640; // options before a list takes their place; pixels before names are left out
const BADGE = 34, LINE = 18, WIDE = 7.5, WIDE_BOLD = 8.5; // pixels: a rung's badge beside its point; lines and characters of text

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(parent, tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function number(value) { // three significant digits, no exponent
  if (!(value > 0)) return "–";
  const rounded = Number(value.toPrecision(3));
  const places = Math.max(0, 2 - Math.floor(Math.log10(rounded)));
  return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

function ticks(low, high, most) { // of a logarithmic scale
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(Number(value.toPrecision(3)));
      }
    if (found.length <= most || steps.length === 1) return found;
  }
}

const plain = value => value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
const scale = (low, high, from, to) => value => from + (to - from) * Math.log(value / low) / Math.log(high / low);

/* What a board shows at the problems that are chosen. */

const at = (board, state) => state.problem ? [state.problem] : board.chosen;

function opMs(entry, problems) {
  const found = problems.map(name => entry?.rows[name]?.ms);
  return found.every(Boolean) && found.length ? found.reduce((sum, ms) => sum + ms, 0) : undefined;
}

function roofMs(entry, problems) {
  const found = problems.map(name => entry?.rows[name]).map(row => row && row.share && row.ms * row.share);
  return found.every(Boolean) && found.length ? found.reduce((sum, ms) => sum + ms, 0) : undefined;
}

const rungColour = (board, number) => `var(--rung-${Math.max(2, board.rungs.length)}-${number})`;

function updateLadder(table, board, state) {
  const entries = board.rungs.map(name => board.entries.find(entry => entry.variant === name));
  const times = entries.map(entry => opMs(entry, at(board, state)));
  const last = entries.findLast(entry => opMs(entry, at(board, state)));
  const known = times.filter(Boolean), roof = roofMs(last, at(board, state));
  const low = Math.min(...known, roof ?? Infinity) / 1.3, high = Math.max(...known) * 1.3;
  const place = scale(low, high, 4, 96), marks = known.length ? ticks(low, high, 6) : [];
  const axis = make("span", { class: "axis", "aria-hidden": "true" });
  for (const mark of marks) axis.append(make("span", { style: `left: ${place(mark)}%` }, plain(mark)));
  const words = roof ? `op time, ms (roofline: ${number(roof)})` : "op time, ms";
  table.tHead.rows[0].cells[1].replaceChildren(words, axis);
  board.rungs.forEach((name, index) => {
    const row = table.tBodies[0].rows[index], ms = times[index], before = times[index - 1];
    row.style.setProperty("--rung", rungColour(board, index + 1));
    row.classList.toggle("off", Boolean(state.precision && entries[index]?.precision !== state.precision));
    row.cells[2].textContent = ms && before ? `${number(before / ms)}×` : "–";
    if (!ms) return row.cells[1].replaceChildren("not measured");
    const track = make("span", { class: "track" });
    for (const mark of marks) track.append(make("i", { style: `left: ${place(mark)}%` }));
    if (roof) track.append(make("i", { class: "roof", style: `left: ${place(roof)}%` }));
    if (before) {
      const [left, right] = [place(before), place(ms)].sort((a, b) => a - b);
      const kind = ms > before ? "from worse" : "from";
      track.append(make("i", { class: kind, style: `left: ${left}%; width: ${right - left}%; top: auto` }));
    }
    track.append(make("b", { style: `left: ${place(ms)}%` }));
    track.append(make("span", { style: `left: ${Math.min(90, Math.max(10, place(ms)))}%` }, `${number(ms)} ms`));
    row.cells[1].replaceChildren(track);
  });
}

function prepareLadder(table) {
  table.setAttribute("role", "table"); // a phone shows its rows as blocks, which are a table still
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    for (const cell of row.cells) cell.setAttribute("role", cell.tagName === "TD" ? "cell" : `${cell.scope === "row" ? "row" : "column"}header`);
  }
  const heads = ["", "", "speed-up:", "the rung before was limited by", "removed by:"];
  for (const row of table.tBodies[0].rows) {
    const [, badge] = /^(\d+)\. /.exec(row.cells[0].textContent) ?? [];
    if (badge) {
      row.cells[0].firstChild.textContent = "";
      row.cells[0].prepend(make("span", { class: "badge" }, badge), " ");
      row.cells[1].classList.add("time");
      row.cells[2].classList.add("gain");
    }
    for (let column = 2; column < 5; column++)
      if (badge && row.cells[column].textContent) row.cells[column].dataset.label = heads[column];
  }
}

/* The roofline. */

function spread(wanted, gap, low, high) { // places at least a gap apart, in the order of those wanted
  const order = wanted.map((_, index) => index).sort((a, b) => wanted[a] - wanted[b]), found = [];
  order.forEach((index, rank) => { found[index] = Math.max(wanted[index], rank ? found[order[rank - 1]] + gap : low); });
  let limit = high;
  for (const index of order.reverse()) {
    found[index] = Math.min(found[index], limit);
    limit = found[index] - gap;
  }
  return found;
}

function stagger(spans) { // the lowest line on which each span has room; spans start in increasing order
  const ends = [];
  return spans.map(([start, end]) => {
    let line = ends.findIndex(taken => taken < start);
    if (line < 0) line = ends.length;
    ends[line] = end;
    return line;
  });
}

function updateRoofline(figure, board, state) {
  const problems = at(board, state);
  const points = board.entries.filter(entry => !entry.host)
    .filter(entry => !state.precision || entry.precision === state.precision)
    .flatMap(entry => problems.filter(name => entry.rows[name]?.tflops)
      .map(problem => ({ ...entry.rows[problem], problem, variant: entry.variant, precision: entry.precision,
        rung: board.rungs.indexOf(entry.variant) + 1 })));
  figure.querySelector("svg")?.remove();
  if (!points.length) return;
  const width = Math.max(320, figure.clientWidth), height = Math.min(680, Math.max(420, width * 0.55));
  const svg = draw(figure, "svg", { viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": "Roofline: arrow keys go from point to point, Enter shows the kernel; the tables have the same figures" });
  figure.prepend(svg);
  const roofs = Object.entries(board.ceilings).filter(([name]) => name.endsWith("_tflops"));
  const slope = (board.ceilings.copy_gbps ?? 0) / 1e3, rates = points.map(point => point.tflops);
  const ridge = slope && roofs.length ? Math.max(...roofs.map(([, value]) => value)) / slope : Infinity; // to be seen
  const lowX = Math.min(...points.map(point => point.intensity / 8), ridge / 2), highX = Math.max(...points.map(p => p.intensity)) * 8;
  const lowY = Math.min(...rates) / 2, highY = Math.max(...rates, ...roofs.map(([, value]) => value)) * 1.7;
  const columns = problems.map(problem => points.filter(point => point.problem === problem)).filter(inside => inside.length)
    .sort(([a], [b]) => a.intensity - b.intensity);
  const x = scale(lowX, highX, 58, width - 8), middles = columns.map(([point]) => x(point.intensity));
  const levels = stagger(columns.map(([point], column) => // names of problems are bold
    [-1, 1].map(side => middles[column] + side * (point.problem.length * WIDE_BOLD / 2 + 3))));
  const top = 26 + LINE * Math.max(...levels), y = scale(lowY, highY, height - 46, top);
  for (const mark of ticks(lowX, highX, width / 90)) {
    draw(svg, "line", { class: "grid", x1: x(mark), x2: x(mark), y1: top, y2: height - 46 });
    draw(svg, "text", { class: "soft", x: x(mark), y: height - 28, "text-anchor": "middle" }, plain(mark));
  }
  for (const mark of ticks(lowY, highY, 9)) {
    draw(svg, "line", { class: "grid", x1: 58, x2: width - 8, y1: y(mark), y2: y(mark) });
    draw(svg, "text", { class: "soft", x: 52, y: y(mark) + 4, "text-anchor": "end" }, plain(mark));
  }
  draw(svg, "text", { class: "soft", x: (58 + width) / 2, y: height - 6, "text-anchor": "middle" }, "FLOPs per byte moved");
  draw(svg, "text", { class: "soft", x: 4, y: 12 }, "TFLOP/s");
  drawCeilings(svg, roofs, slope, [lowX, highX], lowY, x, y);
  columns.forEach((inside, column) => {
    const isFirst = column === 0 && columns.length > 1, next = isFirst ? Infinity : middles[column + 1] ?? Infinity;
    draw(svg, "text", { class: "halo", x: middles[column], y: top - 10 - LINE * levels[column], "text-anchor": "middle",
      "font-weight": 700 }, inside[0].problem);
    drawColumn(svg, board, inside, isFirst ? -1 : 1, middles[column],
      Math.min(next - middles[column], width > NARROW ? Infinity : BADGE + 20), y, top, height);
  });
  svg.querySelector(".point")?.setAttribute("tabindex", "0");
}

function drawCeilings(svg, roofs, slope, [lowX, highX], lowY, x, y) {
  const top = Math.max(...roofs.map(([, value]) => value), 0);
  if (slope) {
    const end = top ? Math.min(highX, top / slope) : highX, start = Math.max(lowX, lowY / slope);
    draw(svg, "line", { class: "ceiling", x1: x(start), y1: y(slope * start), x2: x(end), y2: y(slope * end) });
    const angle = Math.atan2(y(slope * end) - y(slope * start), x(end) - x(start)) * 180 / Math.PI;
    const near = [x(start * 1.15), y(slope * start * 1.15) - 6];
    draw(svg, "text", { class: "soft halo", transform: `translate(${near}) rotate(${angle})` }, `memory, ${number(slope * 1e3)} GB/s`);
  }
  for (const [name, value] of roofs.filter(([, value]) => value > lowY)) {
    draw(svg, "line", { class: "ceiling", x1: x(Math.max(lowX, slope ? value / slope : lowX)), x2: x(highX), y1: y(value), y2: y(value) });
    draw(svg, "text", { class: "soft halo", x: x(highX), y: y(value) - 5, "text-anchor": "end" },
      `${name.replace("_tflops", "")}, ${number(value)} TFLOP/s`);
  }
}

/* Badges and names of the rungs are left out where the next column is too close. */
function drawColumn(svg, board, points, side, across, room, y, top, height) {
  const rungs = points.filter(point => point.rung), others = points.filter(point => !point.rung);
  const places = spread(rungs.map(point => y(point.tflops)), 23, top + 8, height - 58), badge = across + side * BADGE;
  for (const point of others) drawPoint(svg, point, "var(--grey)", 4.5, across, y(point.tflops));
  rungs.forEach((point, index) => {
    if (room >= BADGE + 20)
      draw(svg, "line", { class: "leader", x1: across, y1: y(point.tflops), x2: badge, y2: places[index] });
    const group = drawPoint(svg, point, rungColour(board, point.rung), 6, across, y(point.tflops));
    if (room < BADGE + 20) return;
    draw(group, "circle", { cx: badge, cy: places[index], r: 10.5, fill: rungColour(board, point.rung) });
    draw(group, "text", { class: "badge-text", x: badge, y: places[index] + 4 }, point.rung);
    if (room >= BADGE + 26 + point.variant.length * WIDE)
      draw(group, "text", { class: "halo", x: badge + side * 16, y: places[index] + 4, "text-anchor": side > 0 ? "start" : "end" }, point.variant);
  });
}

function drawPoint(svg, point, colour, radius, across, down) {
  const share = point.share ? `, ${Math.round(point.share * 100)} % of the roofline` : "";
  const lines = [`${point.rung ? `${point.rung}. ` : ""}${point.variant}, ${point.problem}`, `${number(point.ms)} ms`,
    `${number(point.tflops)} TFLOP/s, ${number(point.gbps)} GB/s${share}`, `${point.precision}, max error ${point.error.toExponential(1)}`];
  const group = draw(svg, "g", { class: "point", role: "button", tabindex: "-1", "aria-label": lines.join("; ") });
  draw(group, "circle", { cx: across, cy: down, r: radius, fill: colour });
  draw(group, "circle", { class: "reach", cx: across, cy: down, r: 9 });
  const show = () => showTip(lines.join("\n"), group.firstChild.getBoundingClientRect());
  for (const kind of ["pointerenter", "focus"]) group.addEventListener(kind, show);
  for (const kind of ["pointerleave", "blur"]) group.addEventListener(kind, () => { tip.hidden = true; });
  group.addEventListener("click", () => openVariant(point.variant));
  group.addEventListener("keydown", event => moveFocus(event, group, () => openVariant(point.variant)));
  return group;
}

function showTip(text, box) {
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, box.right + 12))}px`;
  tip.style.top = `${Math.max(8, Math.min(innerHeight - height - 8, box.top - height / 2))}px`;
}

function moveFocus(event, element, act) { // among its siblings of one class, of which one is in the order of Tab
  const all = [...element.parentNode.querySelectorAll(`.${element.classList[0]}`)], index = all.indexOf(element);
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (step) {
    const next = all[(index + step + all.length) % all.length];
    element.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  } else if (event.key === "Enter" || event.key === " ") act();
  else return;
  event.preventDefault();
}

/* A variant's sources. */

function lines(text, isDiff) {
  const kinds = { "+": "add", "-": "remove", "@": "hunk" };
  return make("pre", { tabindex: "0" }, ...text.split("\n").map(line =>
    make("span", isDiff && kinds[line[0]] ? { class: kinds[line[0]] } : {}, line)));
}

function openVariant(name) {
  const variant = data.variants[name];
  if (!variant) return;
  tip.hidden = true;
  const panels = Object.entries(variant.files).map(([file, text]) => [file, lines(text, false)]);
  if (variant.diff) panels.push([`changes in ${variant.parent}`, lines(variant.diff, true)]);
  const lesson = data.root ? make("a", { href: `${data.root}/${variant.lesson}` }, variant.lesson) : variant.lesson;
  const close = make("button", { class: "close", type: "button" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const tabs = make("div", { role: "tablist" }), panel = make("div", { role: "tabpanel", id: "variant-panel" });
  for (const [label, content] of panels) {
    const tab = make("button", { role: "tab", type: "button", class: "tab", "aria-controls": "variant-panel" }, label);
    const select = () => {
      for (const other of tabs.children) {
        other.setAttribute("aria-selected", String(other === tab));
        other.tabIndex = other === tab ? 0 : -1;
      }
      panel.replaceChildren(content);
    };
    tab.addEventListener("click", select);
    tab.addEventListener("focus", select);
    tab.addEventListener("keydown", event => moveFocus(event, tab, select));
    tabs.append(tab);
  }
  const about = make("p", {}, `${variant.idea}. `, make("span", { class: "count" }, "Lesson: ", lesson, "; ", make("code", {}, `python run.py show ${name}`)));
  dialog.replaceChildren(make("header", {}, make("h2", { id: "variant-name" }, name), about, tabs, close), panel);
  tabs.firstChild.click();
  dialog.showModal();
}

for (const code of document.querySelectorAll("code[data-variant]")) {
  if (code.closest("thead")) continue; // a click there sorts
  const button = make("button", { type: "button", class: "variant", "aria-haspopup": "dialog" });
  code.replaceWith(button);
  const [mark] = /^[,.;:)]+/.exec(button.nextSibling?.textContent ?? "") ?? [];
  if (mark) { // the comma stays with the name
    button.nextSibling.textContent = button.nextSibling.textContent.slice(mark.length);
    const together = make("span", { class: "together" }, mark);
    button.replaceWith(together);
    together.prepend(button);
  }
  button.append(code);
  button.addEventListener("click", () => openVariant(code.dataset.variant));
}
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });

/* Sorting and filters. */

function value(cell) {
  const found = /-?[\d,]*\.?\d+(e[-+]?\d+)?/.exec(cell.textContent);
  return found ? Number(found[0].replaceAll(",", "")) : -Infinity;
}

function makeSortable(table) {
  const body = table.tBodies[0], original = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    const compare = original.some(row => row.cells[column].classList.contains("number"))
      ? (a, b) => value(a.cells[column]) - value(b.cells[column])
      : (a, b) => a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true });
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort") ?? "none"];
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", next);
      const rows = next === "none" ? original : [...original].sort(compare);
      body.append(...(next === "descending" ? rows.reverse() : rows));
    });
  });
}

function filterTables(section, board, state) {
  const precisions = Object.fromEntries(board.entries.map(entry => [entry.variant, entry.precision])), counts = [];
  for (const table of section.querySelectorAll("table[data-table=variants]")) {
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const name = row.cells[0].querySelector("code").textContent;
      row.hidden = !name.includes(state.text) || Boolean(state.precision && precisions[name] !== state.precision)
        || (state.onlyRungs && !board.rungs.includes(name));
      shown += row.hidden ? 0 : 1;
    }
    counts.push(`${shown} of ${table.tBodies[0].rows.length} variants`);
  }
  section.querySelector(".count").textContent = counts[0];
}

let groups = 0;
function choice(legend, options, chosen, change) { // of one option: radio buttons, or a list if there are many
  if (options.length > MOST_RADIOS) {
    const select = make("select", {}, ...options.map(([key, label]) => make("option", { value: key }, label)));
    select.value = chosen;
    select.addEventListener("change", () => change(select.value));
    return make("label", {}, `${legend} `, select);
  }
  const group = `choice-${groups++}`;
  return make("fieldset", {}, make("legend", {}, legend), ...options.map(([key, label]) => {
    const input = make("input", { type: "radio", name: group, value: key });
    input.checked = key === chosen;
    input.addEventListener("change", () => change(key));
    return make("label", { class: "choice" }, input, label);
  }));
}

function prepare(section, board) {
  const ladder = section.querySelector("table[data-table=ladder]"), charts = section.querySelectorAll(".chart");
  const single = board.chosen.length === 1, first = section.querySelector("table[data-table=variants]");
  const state = { problem: single ? board.chosen[0] : "", precision: "", text: "", onlyRungs: false };
  const update = () => {
    if (ladder) updateLadder(ladder, board, state);
    for (const chart of charts) updateRoofline(chart, board, state);
  };
  const change = key => chosen => {
    state[key] = chosen;
    update();
    if (first) filterTables(section, board, state);
  };
  if (ladder) prepareLadder(ladder);
  const problems = board.problems.map(name => [name, name]);
  const precisions = [...new Set(board.entries.map(entry => entry.precision))].map(name => [name, name]);
  const switches = make("div", { class: "switches" });
  if (problems.length > 1) switches.append(choice("Problem", single ? problems : [["", "sum"], ...problems], state.problem, change("problem")));
  if (precisions.length > 1) switches.append(choice("Precision", [["", "all"], ...precisions], "", change("precision")));
  (ladder ?? charts[0])?.closest(".scroll, .chart").before(switches);
  if (first) {
    const search = make("input", { type: "search", placeholder: "filter by name", "aria-label": "Filter variants by name" });
    search.addEventListener("input", () => change("text")(search.value.trim()));
    const only = make("input", { type: "checkbox" });
    only.addEventListener("change", () => change("onlyRungs")(only.checked));
    const filters = make("div", { class: "switches" }, search, make("span", { class: "count", role: "status" }));
    if (board.rungs.length) filters.insertBefore(make("label", {}, only, " rungs of the ladder only"), filters.lastChild);
    first.closest(".scroll").before(filters);
    filterTables(section, board, state);
  }
  update();
  for (const chart of charts) new ResizeObserver(() => updateRoofline(chart, board, state)).observe(chart);
}

for (const table of document.querySelectorAll("table:not([data-table=ladder])")) makeSortable(table);
document.querySelectorAll("section.part").forEach((section, index) => {
  if (data.boards[index]) prepare(section, data.boards[index]);
});
if (matchMedia("(max-width: 44rem)").matches) document.querySelector("nav details").open = false;
