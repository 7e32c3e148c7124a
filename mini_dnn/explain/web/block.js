// The block view: warps as rows, instructions from left to right.
const ROW = 16, TOP = 18, GUTTER = 34;
const GROUPS = [["load", "global load", "--load"], ["store", "global store", "--store"], ["shared", "shared memory", "--shared"],
  ["copy", "copy in flight", "--copy"], ["product", "product or function of a warp", "--product"],
  ["barrier", "barrier", "--barrier"], ["wait", "waits", "--wait"]];
function group_of(b, i) {
  const kind = KINDS[b.kind[i]], space = SPACES[b.space[i]];
  if (kind === "barrier" || (kind === "event" && /mbarrier_wait/.test(kernel().names[b.name[i]]))) return "barrier";
  if (kind.startsWith("copy")) return "copy";
  if (kind === "event" || kind === "warp") return "product";
  if (space === "shared" || space === "remote") return "shared";
  return writes(kind) || kind === "atomic" ? "store" : "load";
}
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let view = null;  // of the timeline: scale and rows

function show_block() {
  const b = block(), k = kernel(), warps = [...new Set(b.warp)].sort((x, y) => x - y);
  const used = new Set(b.kind.map((_, i) => group_of(b, i)));
  const waiting = new Map(warps.map((w) => [w, 0])), count = new Map(warps.map((w) => [w, {}]));
  b.kind.forEach((_, i) => {
    const group = group_of(b, i), of = count.get(b.warp[i]);
    of[group] = (of[group] || 0) + 1;
    if (group === "barrier") waiting.set(b.warp[i], waiting.get(b.warp[i]) + b.end[i] - b.step[i] - 1);
  });
  if ([...waiting.values()].some(Boolean)) used.add("wait");
  const longest = [...waiting].sort((x, y) => y[1] - x[1])[0];
  const waits = longest && longest[1] ? ` Warp ${longest[0]} waits longest at barriers: ${percent(longest[1], b.steps)} of the steps.`
    : used.has("barrier") ? " No warp waits for another at a barrier." : " There is no barrier in it.";
  by("block-text").textContent = `Block (${b.at.join(", ")}): ${many(warps.length, "warp")}, ${b.lacks ? "at least " : ""}${many(b.records, "step")} of warps` +
    `${b.records > b.warp.length ? `, of which the first ${whole(b.warp.length)} are shown` : ""}.${b.lacks ? " The launch has more steps than are recorded, so some are missing here and in the grid." : ""}${waits} A step is one instruction of a warp, and one more for each bank conflict: an order, not a time.`;
  fill(by("block-legend"), ...GROUPS.filter(([name]) => used.has(name)).map(([, words, variable]) => {
    const mark = make("i", { "aria-hidden": "true" });
    mark.style.background = `var(${variable})`;
    return make("li", {}, mark, words);
  }));
  const columns = GROUPS.filter(([name]) => used.has(name) && name !== "wait");
  table(by("block-table"), ["warp", ...columns.map(([, words]) => words), "steps of waiting"],
    warps.map((w) => [w, ...columns.map(([name]) => whole(count.get(w)[name] || 0)), whole(waiting.get(w))]));
  view = { warps, rows: new Map(warps.map((w, i) => [w, i])), flights: b.flights };
  draw_timeline();
}
function scale() {
  const room = Math.max(200, by("timeline").clientWidth - GUTTER - 4), fit = room / block().steps;
  return Math.max(fit, fit * Math.pow(Math.max(4, 14 / fit), Number(by("zoom").value) / 100));
}
function draw_timeline() {
  const box = by("timeline"), canvas = by("timeline-canvas"), b = block(), width = box.clientWidth;
  if (!view || !width || !b) return;
  const height = TOP + view.warps.length * ROW + 2, dots = window.devicePixelRatio || 1, x_scale = scale(), from = box.scrollLeft;
  by("timeline-space").style.width = `${Math.ceil(GUTTER + b.steps * x_scale)}px`;
  canvas.width = width * dots; canvas.height = height * dots;
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  const c = canvas.getContext("2d"), colours = Object.fromEntries(GROUPS.map(([name, , variable]) => [name, colour(variable)]));
  const text = colour("--text"), x_of = (step) => GUTTER + step * x_scale - from;
  c.scale(dots, dots);
  c.font = "11px ui-monospace, Menlo, Consolas, monospace";
  c.fillStyle = colour("--soft");
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000].find((n) => n * x_scale >= 60) || 100000;
  for (let step = 0; step <= b.steps; step += every)
    if (x_of(step) >= GUTTER - 1) { c.fillRect(x_of(step), TOP - 5, 1, 4); c.fillText(String(step), x_of(step) + 2, 11); }
  const chosen_line = b.place[state.record];
  for (let i = 0; i < b.warp.length; i++) {
    const x = x_of(b.step[i]), end = x_of(b.end[i]);
    if (end < GUTTER || x > width) continue;
    const y = TOP + view.rows.get(b.warp[i]) * ROW, group = group_of(b, i);
    const wide = Math.max(end - x - (x_scale > 4 ? 1 : 0), 0.6);
    if (group === "barrier") {
      c.fillStyle = colours.wait;
      c.fillRect(x, y + 6, wide, ROW - 12);
      c.fillStyle = colours.barrier;
      c.fillRect(Math.max(x, end - Math.max(2, Math.min(x_scale, 5))), y + 1, Math.max(2, Math.min(x_scale, 5)), ROW - 2);
      continue;
    }
    c.fillStyle = colours[group];
    const less = b.place[i] === chosen_line ? 0 : 2;
    c.fillRect(x, y + 1 + less, wide, ROW - 3 - 2 * less);
  }
  c.fillStyle = colours.copy;
  for (const [warp, start, end] of view.flights) c.fillRect(x_of(start), TOP + (view.rows.get(warp) + 1) * ROW - 3, Math.max(1, x_of(end) - x_of(start)), 2);
  const row = view.rows.get(b.warp[state.record]), x = x_of(b.step[state.record]);
  c.strokeStyle = text; c.lineWidth = 2;
  c.strokeRect(x - 1, TOP + row * ROW + 1, Math.max(x_of(b.end[state.record]) - x + 1, 4), ROW - 3);
  c.fillStyle = colour("--ground");
  c.fillRect(0, TOP, GUTTER - 2, height);
  c.fillStyle = text;
  view.warps.forEach((warp, i) => c.fillText(String(warp), 6, TOP + i * ROW + 12));
}
function scroll_to_record() {
  const box = by("timeline"), b = block(), x = GUTTER + b.step[state.record] * scale();
  if (x < box.scrollLeft + GUTTER || x > box.scrollLeft + box.clientWidth - 20) box.scrollLeft = x - box.clientWidth / 2;
}
// The record of a warp that is nearest to a step.
function nearest(warp, step) {
  const b = block();
  let best = null;
  for (let i = 0; i < b.warp.length; i++)
    if (b.warp[i] === warp && (best === null || Math.abs(b.step[i] - step) < Math.abs(b.step[best] - step))) best = i;
  return best;
}
function timeline_click(event) {
  const box = by("timeline").getBoundingClientRect(), warp = view.warps[Math.floor((event.clientY - box.top - TOP) / ROW)];
  const step = (event.clientX - box.left - GUTTER + by("timeline").scrollLeft) / scale() - 0.5;
  if (warp !== undefined) select_record(nearest(warp, step));
}
function timeline_key(event) {
  const b = block(), warp = b.warp[state.record], row = view.rows.get(warp), step = b.step[state.record];
  const find = (way) => { for (let i = state.record + way; i >= 0 && i < b.warp.length; i += way) if (b.warp[i] === warp) return i; return null; };
  const to = { ArrowLeft: () => find(-1), ArrowRight: () => find(1),
    ArrowUp: () => (row ? nearest(view.warps[row - 1], step) : null),
    ArrowDown: () => (row + 1 < view.warps.length ? nearest(view.warps[row + 1], step) : null) }[event.key];
  if (!to) return;
  event.preventDefault();
  const found = to();
  if (found !== null) select_record(found);
}
