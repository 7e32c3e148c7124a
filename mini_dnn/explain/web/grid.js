// The grid view: which elements of the arrays a block reads and writes, and which another one does, too.
const MOST_PIXELS = 512;

// How often a block's lanes use each element of an array, by the element's number.
function footprint(b, number, of_writes) {
  const found = new Map(), used = b.arrays.find((one) => one.array === number && one.writes === of_writes);
  let at = 0;
  for (let i = 0; used && i < used.runs.length; i += 3) {
    at += used.runs[i];
    for (const end = at + used.runs[i + 1]; at < end; at++) found.set(at, used.runs[i + 2]);
  }
  return found;
}
const used_arrays = (b, of_writes) => b.arrays.filter((used) => used.writes === of_writes).map((used) => used.array);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

function show_grid() {
  const k = kernel(), b = block(), other = k.blocks[state.other], alone = other === b;
  options(by("choose-other"), k.blocks.map((one, i) => `(${one.at.join(", ")})${i === state.block ? ": itself" : ""}`), state.other);
  const pictures = [], rows = [], sentences = [];
  for (const of_writes of [false, true])
    for (const number of used_arrays(b, of_writes)) {
      const a = footprint(b, number, of_writes), o = alone ? new Map() : footprint(other, number, of_writes);
      const both = [...a.keys()].filter((element) => o.has(element)).length, uses = sum([...a.values()]);
      const name = array(number).name, verb = of_writes ? "writes" : "reads";
      rows.push([name, verb, whole(a.size), whole(uses), a.size ? ratio(uses / a.size) : "", alone ? "" : whole(o.size), alone ? "" : whole(both)]);
      if (!of_writes) sentences.push(`it reads ${many(a.size, "element")} of ${name}, ${uses === a.size ? "once each" : `each ${ratio(uses / a.size)} times`}` +
        (alone || !both ? "" : `, and ${percent(both, a.size)} of them are read by the other block, too`));
      else sentences.push(`it writes ${many(a.size, "element")} of ${name}` + (both ? `, ${whole(both)} of which the other block writes, too` : ""));
      pictures.push(picture_of(number, verb, a, o));
    }
  const words = sentences.length ? `${sentences.join("; ")}.` : "it uses no global memory in the traced part.";
  by("grid-text").textContent = `Block (${b.at.join(", ")}) of a grid of ${k.grid.join(" × ")}: ${words}`;
  fill(by("grid-pictures"), ...pictures);
  const mark = (variable) => { const i = make("i", { "aria-hidden": "true" }); i.style.background = `var(${variable})`; return i; };
  fill(by("grid-legend"), make("li", {}, mark("--a"), `block (${b.at.join(", ")})`),
    ...(alone ? [] : [make("li", {}, mark("--b"), `block (${other.at.join(", ")})`), make("li", {}, mark("--both"), "both")]));
  table(by("grid-table"), ["array", "access", "elements", "uses by lanes", "uses of each", "by the other block", "by both"], rows, 2);
}

// An array as a picture: its last two axes, at the plane of the others that the block uses most.
function picture_of(number, verb, a, o) {
  const one = array(number), shape = one.shape.length > 1 ? one.shape : wrapped(one.shape[0] || 1);
  const [rows, columns] = shape.slice(-2), size = rows * columns, leading = shape.slice(0, -2);
  const planes = new Map();
  for (const elements of [a, o]) for (const e of elements.keys()) planes.set(Math.floor(e / size), (planes.get(Math.floor(e / size)) || 0) + (elements === a ? 1 : 0));
  const numbers = [...planes.keys()].sort((x, y) => x - y), start = [...planes].sort((x, y) => y[1] - x[1])[0][0];
  const name_of = (plane) => {
    const index = [];
    for (const length of [...leading].reverse()) { index.unshift(plane % length); plane = Math.floor(plane / length); }
    return leading.length ? `${one.name}[${index.join(", ")}]` : one.name;
  };
  const canvas = make("canvas", { role: "img" });
  const draw = (plane) => draw_plane(canvas, rows, columns, plane * size, a, o, `${name_of(plane)}, ${rows} × ${columns}: what the block ${verb}`);
  const select = make("select", { onchange: () => draw(Number(select.value)) },
    ...numbers.map((plane) => make("option", { value: plane, selected: plane === start }, name_of(plane))));
  draw(start);
  const label = numbers.length > 1 ? make("label", {}, `${verb} `, select) : `${verb} ${name_of(start)}`;
  return make("figure", {}, make("figcaption", {}, label, ` ${rows} × ${columns}`), canvas);
}
function wrapped(length) {
  const columns = length > 64 ? Math.min(256, Math.ceil(Math.sqrt(length) / 32) * 32) : length;
  return [Math.ceil(length / columns), columns];
}
function draw_plane(canvas, rows, columns, first, a, o, words) {
  const bin = Math.max(1, Math.ceil(Math.max(rows, columns) / MOST_PIXELS)), height = Math.ceil(rows / bin), width = Math.ceil(columns / bin);
  const zoom = Math.max(1, Math.min(24, Math.floor(MOST_PIXELS / Math.max(width, height))));
  canvas.width = width * zoom; canvas.height = height * zoom;
  canvas.style.width = `${Math.max(width * zoom, 96)}px`;
  canvas.setAttribute("aria-label", words);
  const c = canvas.getContext("2d"), marks = new Uint8Array(width * height), counts = new Float32Array(width * height);
  const mark = (elements, bit) => {
    for (const [e, uses] of elements) {
      const at = e - first;
      if (at < 0 || at >= rows * columns) continue;
      const pixel = Math.floor(Math.floor(at / columns) / bin) * width + Math.floor((at % columns) / bin);
      marks[pixel] |= bit;
      if (bit === 1) counts[pixel] = Math.max(counts[pixel], uses);
    }
  };
  mark(a, 1); mark(o, 2);
  const most = counts.reduce((x, y) => Math.max(x, y), 1), colours = [colour("--ground"), colour("--a"), colour("--b"), colour("--both")];
  const gap = zoom >= 6 ? 1 : 0;
  c.fillStyle = colour("--panel");
  c.fillRect(0, 0, canvas.width, canvas.height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const m = marks[y * width + x];
      c.fillStyle = colours[m];
      c.globalAlpha = m === 1 || m === 3 ? 0.45 + 0.55 * (Math.log(1 + counts[y * width + x]) / Math.log(1 + most)) : 1;
      c.fillRect(x * zoom, y * zoom, zoom - gap, zoom - gap);
    }
  c.globalAlpha = 1;
}
