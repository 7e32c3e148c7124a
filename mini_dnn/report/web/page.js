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
