// What is chosen, and what has to be shown again.
function choose(changes) {
  Object.assign(state, { record: 0 }, changes);
  if (changes.variant !== undefined && changes.kernel === undefined) state.kernel = busiest(variant());
  const k = kernel();
  state.block = Math.max(0, Math.min(changes.block ?? 0, k.blocks.length - 1));
  state.other = k.blocks.length > 1 ? (state.block ? 0 : 1) : 0;
  options(by("choose-variant"), DATA.variants.map((v) => v.name), state.variant);
  options(by("choose-kernel"), variant().kernels.map((one) => one.name), state.kernel);
  options(by("choose-block"), k.blocks.map((b) => `(${b.at.join(", ")})`), state.block);
  fill(by("title"), variant().name, make("small", {}, variant().idea));
  by("about").textContent = variant().problem;
  show_summary();
  show_findings();
  const first = k.findings.find((finding) => finding.line) || { array: -1, file: 0, line: 0, ...hottest(k) };
  state.file = first.file;
  state.line = 0;
  show_files();
  show_source();
  document.querySelector(".views").hidden = !k.blocks.length;  // no traced block of it does anything
  if (!k.blocks.length) return;
  show_block();
  show_grid();
  if (first.line) select_line(first.file, first.line, first.array);
  else select_record(0);
}
// The kernel with most instructions.
function busiest(v) {
  const work = v.kernels.map((k) => total(k.counts, "instructions"));
  return work.indexOf(Math.max(...work));
}
// The place with most sectors, or else with most instructions.
function hottest(k) {
  const by_heat = k.counts.filter((count) => count.file >= 0).sort((x, y) => (MEMORY(y) ? y.sectors + y.wavefronts : 0) - (MEMORY(x) ? x.sectors + x.wavefronts : 0));
  return by_heat[0];
}
function show_files() {
  const counted = new Set(kernel().counts.map((count) => count.file)), files = variant().files;
  const names = files.map((file, i) => [file.name, i]).filter(([, i]) => counted.has(i) || i === 0);
  fill(by("choose-file"), ...names.map(([name, i]) => make("option", { value: i, selected: i === state.file }, name)));
  by("choose-file").disabled = names.length < 2;
}
function select_line(file, line, number = -1) {
  if (file !== state.file) {
    state.file = file;
    show_files();
    show_source();
  }
  state.line = line;
  mark_line();
  if (!block()) return;
  const b = block(), here = b.place.map((place) => place === file * 1e6 + line);
  const of_array = here.map((fits, i) => fits && b.array[i] === number), at = of_array.includes(true) ? of_array : here;
  const same_warp = at.findIndex((fits, i) => fits && b.warp[i] === b.warp[state.record]);
  const any = same_warp >= 0 ? same_warp : at.includes(true) ? at.indexOf(true) : below(file, line);
  if (any >= 0) select_record(any, false);
  else {
    by("warp-text").textContent = `In the trace, no warp of block (${b.at.join(", ")}) reaches line ${line}. Another block may reach it: choose one above.`;
    fill(by("warp-picture"));
    fill(by("warp-table"));
  }
}
// A finding may name a branch, which moves nothing itself: the first record of the lines that follow, or -1.
function below(file, line) {
  if (!kernel().findings.some((finding) => finding.file === file && finding.line === line)) return -1;
  const after = block().line.map((l, i) => (block().file[i] === file && l > line ? l : Infinity)), least = Math.min(...after);
  return least === Infinity ? -1 : after.indexOf(least);
}
function select_record(i, with_line = true) {
  state.record = i;
  const r = record(i);
  if (with_line && (r.file !== state.file || r.line !== state.line)) {
    if (r.file !== state.file) { state.file = r.file; show_files(); show_source(); }
    state.line = r.line;
    mark_line();
  }
  show_warp();
  scroll_to_record();
  draw_timeline();
}
function step(way) {
  const to = neighbour(way);
  if (to !== null) select_record(to);
}

by("choose-variant").onchange = (event) => choose({ variant: Number(event.target.value) });
by("choose-kernel").onchange = (event) => choose({ kernel: Number(event.target.value) });
by("choose-block").onchange = (event) => {
  const { file, line } = state;
  choose({ block: Number(event.target.value) });
  if (line) select_line(file, line);  // there is none after another file was chosen
};
by("choose-other").onchange = (event) => { state.other = Number(event.target.value); show_grid(); };
by("choose-file").onchange = (event) => { state.file = Number(event.target.value); state.line = 0; show_source(); };
by("choose-heat").onchange = (event) => { state.heat = event.target.value; show_source(); mark_line(); };
by("choose-warp").onchange = (event) => {
  const warp = Number(event.target.value), b = block(), place = b.place[state.record];
  const same = b.warp.findIndex((w, i) => w === warp && b.place[i] === place);
  select_record(same >= 0 ? same : nearest(warp, b.step[state.record]));
};
by("only-line").onchange = () => show_warp();
by("back").onclick = () => step(-1);
by("next").onclick = () => step(1);
by("warp").onkeydown = (event) => {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key) || ["SELECT", "INPUT"].includes(event.target.tagName)) return;
  event.preventDefault();
  step(event.key === "ArrowLeft" ? -1 : 1);
};
by("timeline").onclick = timeline_click;
by("timeline").onkeydown = timeline_key;
by("timeline").onscroll = draw_timeline;
by("zoom").oninput = () => { draw_timeline(); scroll_to_record(); draw_timeline(); };
window.addEventListener("resize", draw_timeline);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw_timeline(); if (block()) show_grid(); });
by("choices").onsubmit = (event) => event.preventDefault();
by("note").textContent = DATA.note;
show_compare();
choose({ variant: 0 });
document.documentElement.dataset.ready = "yes";
