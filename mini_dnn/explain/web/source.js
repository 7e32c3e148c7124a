// The summary, the findings, the comparison and the source.
const HEATS = {
  sectors: ["sectors of global memory", (c) => (GLOBAL(c) ? c.sectors : 0)],
  wasted: ["sectors above the ideal", (c) => (GLOBAL(c) ? Math.max(0, c.sectors - c.ideal) : 0)],
  wavefronts: ["passes of shared memory", (c) => (SHARED(c) ? c.wavefronts : 0)],
  conflicts: ["bank conflicts", (c) => (SHARED(c) ? c.wavefronts - c.ideal_wavefronts : 0)],
  products: ["products", (c) => c.products],
  accesses: ["accesses of memory", (c) => (MEMORY(c) ? c.instructions : 0)],
};
const COLUMNS = [["sectors", "sect."], ["conflicts", "confl."], ["products", "prod."]];

function figures(k) {
  const sectors = total(k.counts, "sectors", GLOBAL), ideal = total(k.counts, "ideal", GLOBAL);
  const passes = total(k.counts, "wavefronts", SHARED), best = total(k.counts, "ideal_wavefronts", SHARED);
  const lanes = total(k.counts, "lanes", MEMORY), operations = total(k.counts, "instructions", MEMORY);
  const products = total(k.counts, "products"), splits = total(k.counts, "splits");
  return { sectors, ideal, passes, best, lanes, operations, products, splits };
}
const sum_of = (v) => v.kernels.map(figures).reduce((a, b) => Object.fromEntries(Object.keys(a).map((key) => [key, a[key] + b[key]])));

function show_summary() {
  const k = kernel(), f = figures(k);
  const card = (name, value, words, mood = "") => make("div", { class: mood }, make("dt", {}, name), make("dd", {}, value), make("dd", {}, words));
  const mood = (bad, good) => (bad ? "bad" : good ? "good" : "");
  const launches = k.launches > 1 ? `, launched ${k.launches} times` : "";
  const cards = [card("Grid × block", `${k.grid.join("×")} × ${k.block.join("×")}`,
    `${many(k.block.reduce((a, b) => a * b, 1), "thread")} a block${launches}`)];
  if (f.sectors)
    cards.push(card("Sectors of global memory", whole(f.sectors),
      f.sectors > 1.05 * f.ideal ? `${ratio(f.sectors / f.ideal)} times the ${whole(f.ideal)} that the bytes need` : "about as many as the bytes need", mood(f.sectors >= 2 * f.ideal, f.sectors <= 1.3 * f.ideal)));
  if (f.passes)
    cards.push(card("Passes of shared memory", whole(f.passes),
      f.passes > f.best ? `${whole(f.passes - f.best)} of them are bank conflicts` : "no bank conflicts", mood(f.passes >= 1.5 * f.best, f.passes === f.best)));
  if (f.operations)
    cards.push(card("Active lanes", `${ratio(f.lanes / f.operations)} of 32`, "on average in an access of memory", mood(f.lanes < 24 * f.operations, f.lanes >= 31 * f.operations)));
  if (f.products) cards.push(card("Products", whole(f.products), f.sectors ? `${ratio(f.products / f.sectors)} for each sector` : "multiply and add"));
  if (f.splits) cards.push(card("Divergence", whole(f.splits), "times that the lanes of a warp diverged"));
  fill(by("cards"), ...cards);
}

function finding_item(finding, go) {
  const where = finding.line ? [make("button", { type: "button", class: "link", onclick: () => go(finding) },
    `line ${finding.line}`), ": "] : [];
  return make("li", { "data-kind": finding.kind, "data-line": finding.line || "" },
    make("p", {}, make("span", { class: "kind" }, finding.title), " ", ...where, finding.what),
    make("p", { class: "cure" }, finding.cure));
}
const NO_FINDING = () => make("li", { class: "none" }, make("p", {}, make("span", { class: "kind" }, "Nothing stands out. "),
  "Accesses are coalesced, there are few bank conflicts, and most lanes are active. Something else limits this kernel: 'run.py profile' shows more."));
function show_findings() {
  const found = kernel().findings;
  const go = (finding) => { select_line(finding.file, finding.line, finding.array); by("source").scrollIntoView(); };
  fill(by("finding-list"), ...(found.length ? found.map((finding) => finding_item(finding, go)) : [NO_FINDING()]));
}

function show_compare() {
  by("compare").hidden = DATA.variants.length < 2;
  if (DATA.variants.length < 2) return;
  const [mine, parent] = DATA.variants, a = sum_of(parent), b = sum_of(mine);
  const row = (name, before, after, more_is_better = false) => {
    const factor = before ? after / before : null, same = factor !== null && Math.abs(factor - 1) < 0.005;
    const better = more_is_better ? after > before : after < before;
    const change = before === after ? "the same" : factor === null ? "new" : same ? "nearly the same" : after ? `× ${factor < 0.1 ? factor.toPrecision(2) : factor.toFixed(2)}` : "none left";
    return [name, whole(before), whole(after), make("td", { class: same || !before || before === after ? "n" : better ? "n better" : "n worse" }, change)];
  };
  const lanes = (f) => (f.operations ? f.lanes / f.operations : 0);
  const rows = [row("accesses of memory by warps", a.operations, b.operations), row("sectors of global memory", a.sectors, b.sectors),
    row("sectors that the bytes need", a.ideal, b.ideal), row("passes of shared memory", a.passes, b.passes),
    row("bank conflicts", a.passes - a.best, b.passes - b.best), row("active lanes in an access", lanes(a), lanes(b), true),
    row("divergence of warps", a.splits, b.splits), row("products", a.products, b.products)];
  const kept = [[a.operations, b.operations], [a.sectors, b.sectors], [a.ideal, b.ideal], [a.passes, b.passes],
    [a.passes - a.best, b.passes - b.best], [1], [a.splits, b.splits], [a.products, b.products]].map((pair) => pair.some(Boolean));
  table(by("compare-table"), ["", parent.name, mine.name, "change"], rows.filter((_, i) => kept[i]));
  const column = (v, at) => make("div", {}, make("h3", {}, v.name), make("p", {}, v.idea), make("ul", {},
    ...v.kernels.flatMap((k, n) => k.findings.map((finding) => make("li", {}, `${finding.title} `,
      make("button", { type: "button", class: "link", onclick: () => { choose({ variant: at, kernel: n }); select_line(finding.file, finding.line, finding.array); } },
        finding.line ? `${k.name}, line ${finding.line}` : k.name))))));
  fill(by("compare-findings"), column(parent, 1), column(mine, 0));
}

// C++ in colours: comments, words, numbers, calls.
const TOKEN = /(\/\/.*$)|("(?:[^"\\]|\\.)*")|\b(__\w+__|extern|const|constexpr|static|inline|template|typename|struct|using|namespace|int|float|double|bool|char|long|short|unsigned|void|half|auto|for|while|do|if|else|return|break|continue|switch|case|true|false|sizeof|asm|volatile|size_t)\b|\b(\d[\w.]*)\b|\b(\w+)(?=\s*\()/g;
function coloured(text) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    parts.push(text.slice(at, match.index));
    const kind = match[1] ? "c" : match[3] ? "k" : match[2] || match[4] ? "d" : "f";
    parts.push(make("span", { class: kind }, match[0]));
    at = match.index + match[0].length;
  }
  return [...parts, text.slice(at)];
}

function by_line(file, value) {
  const found = new Map();
  for (const count of kernel().counts) if (count.file === file) found.set(count.line, (found.get(count.line) || 0) + value(count));
  return found;
}
function show_source() {
  const k = kernel(), file = variant().files[state.file];
  const sums = Object.fromEntries(Object.entries(HEATS).map(([name, [, value]]) => [name, k.counts.reduce((sum, c) => sum + value(c), 0)]));
  const known = Object.keys(HEATS).filter((name) => sums[name]);
  if (!known.includes(state.heat)) state.heat = known[0] || "sectors";
  const select = by("choose-heat");
  fill(select, ...known.map((name) => make("option", { value: name, selected: name === state.heat }, HEATS[name][0])));
  const columns = COLUMNS.filter(([name]) => sums[name]);
  const shares = Object.fromEntries(Object.keys(HEATS).map((name) => [name, by_line(state.file, HEATS[name][1])]));
  const counted = by_line(state.file, (c) => c.instructions);
  const found = new Set(k.findings.filter((f) => f.file === state.file).map((f) => f.line));
  const rows = file.text.map((text, i) => {
    const line = i + 1, has = counted.has(line) || found.has(line), part = (name) => shares[name].get(line) || 0;
    const share = (name) => (part(name) ? percent(part(name), sums[name]) : "");
    const words = columns.map(([name]) => part(name) ? `${share(name)} of ${HEATS[name][0]}` : "").filter(Boolean).join(", ");
    const row = make("tr", { class: [has ? "counted" : "", found.has(line) ? "found" : ""].join(" "), "data-line": line,
      tabindex: has ? -1 : null, "aria-selected": has ? "false" : null, "aria-label": has ? `Line ${line}: ${words || "no memory"}. ${text.trim()}` : null },
      make("td", { class: "no" }, String(line)), make("td", { class: "heat", "aria-hidden": "true" }),
      ...columns.map(([name]) => make("td", { class: "share" }, share(name))), make("td", { class: "text" }, ...coloured(text)));
    row.style.setProperty("--share", sums[state.heat] ? `${(100 * part(state.heat)) / sums[state.heat]}%` : "0%");
    if (has) row.onclick = () => select_line(state.file, line);
    return row;
  });
  const heads = ["line", "heat", ...columns.map(([, short]) => short), "code"];
  const titles = ["", HEATS[state.heat][0], ...columns.map(([name]) => HEATS[name][0]), ""];
  fill(by("code"), make("table", { role: "grid", "aria-label": `Source of ${file.name}`, onkeydown: source_key },
    make("thead", {}, make("tr", {}, ...heads.map((text, i) => make("th", { scope: "col", title: titles[i] || null, class: i > 1 && i < heads.length - 1 ? "n share" : "" }, text)))),
    make("tbody", {}, ...rows)));
  mark_line(false);
}
const counted_rows = () => [...by("code").querySelectorAll("tr.counted")];
function mark_line(scroll = true) {
  const rows = counted_rows();
  for (const row of rows) {
    const chosen = Number(row.dataset.line) === state.line;
    row.setAttribute("aria-selected", String(chosen));
    row.tabIndex = chosen ? 0 : -1;
    if (chosen && scroll) scroll_within(by("code"), row);
  }
  if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
}
// Scrolls the box alone, and never the page.
function scroll_within(box, row) {
  const top = row.offsetTop - box.clientHeight / 2;
  if (box.scrollHeight > box.clientHeight) box.scrollTop = Math.max(0, top);
}
function source_key(event) {
  const rows = counted_rows(), at = rows.findIndex((row) => row.tabIndex === 0);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (to === undefined || !rows[to]) return;
  event.preventDefault();
  select_line(state.file, Number(rows[to].dataset.line));
  rows[to].focus();
}
