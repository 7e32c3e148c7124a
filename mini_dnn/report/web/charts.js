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
