// The page's data, and what follows from it: lanes' addresses, sectors, banks.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SECTOR = 32, LINE = 128, WORD = 4, BANKS = 32, LANES = 32;
const KINDS = DATA.kinds, SPACES = DATA.spaces;
const state = { variant: 0, kernel: 0, block: 0, other: 0, record: 0, file: 0, line: 0, heat: "sectors" };

// Records refer to operations, which have what many records share; here they become columns of a block.
const OPERATION = ["file", "line", "kind", "space", "array", "bytes", "name", "number"];
for (const v of DATA.variants)
  for (const k of v.kernels)
    for (const b of k.blocks) {
      OPERATION.forEach((name, column) => { b[name] = b.op.map((op) => k.operations[op][column]); });
      b.place = b.file.map((file, i) => file * 1e6 + b.line[i]);
    }

const by = (id) => document.getElementById(id);
const variant = () => DATA.variants[state.variant];
const kernel = () => variant().kernels[state.kernel];
const block = () => kernel().blocks[state.block];
const array = (number) => (number < 0 ? null : kernel().arrays[number]);

// Makes an element: properties by name, "class" and attributes with a hyphen or of SVG as attributes.
const SVG = "http://www.w3.org/2000/svg";
function make(tag, attributes = {}, ...children) {
  const of_svg = ["svg", "g", "rect", "text", "line", "path", "title"].includes(tag);
  const element = of_svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element[name] = value;
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
function fill(element, ...children) { element.replaceChildren(...children); return element; }
function options(select, names, chosen) {
  fill(select, ...names.map((name, i) => make("option", { value: i, selected: i === chosen }, name)));
  select.disabled = names.length < 2;
}
function table(element, head, rows, words = 1) {
  const number = (i) => (i < words ? {} : { class: "n" });
  fill(element,
    make("thead", {}, make("tr", {}, ...head.map((text, i) => make("th", { scope: "col", ...number(i) }, text)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, i) =>
      cell instanceof Node ? cell : make("td", number(i), String(cell)))))));
}
const whole = (n) => Math.round(n).toLocaleString("en");
const percent = (part, all) => (all ? (part / all >= 0.0995 || !part ? Math.round((100 * part) / all) : (100 * part / all).toFixed(1)) + " %" : "–");
const ratio = (x) => (x >= 9.95 || Number.isInteger(x) ? Math.round(x).toLocaleString("en") : x.toFixed(1));
const many = (n, word, plural = word + "s") => `${whole(n)} ${n === 1 ? word : plural}`;

// A record of the current block with the offsets of its lanes; null for a lane that does nothing.
function record(i, of = block()) {
  const [mask, deltas] = kernel().patterns[of.pattern[i]];
  const lanes = new Array(LANES).fill(null);
  let at = 0;
  for (let lane = 0; lane < LANES; lane++)
    if ((mask >>> lane) & 1) lanes[lane] = of.base[i] + (typeof deltas === "number" ? deltas * at++ : deltas[at++]);
  return {
    i, lanes, active: at, warp: of.warp[i], file: of.file[i], line: of.line[i], kind: KINDS[of.kind[i]], space: SPACES[of.space[i]],
    array: of.array[i], bytes: of.bytes[i], name: kernel().names[of.name[i]], number: of.number[i],
    step: of.step[i], end: of.end[i],
  };
}
const moves = (r) => r.array >= 0 && r.space !== "none";
const is_shared = (r) => r.space === "shared" || r.space === "remote";
const is_copy = (r) => r.bytes > 16;  // in bulk: its lanes' bytes are many
const writes = (kind) => kind === "store" || kind === "copy_store" || kind === "copy_to" || kind === "tile_store";

// Distinct pieces of so many bytes of memory that the lanes touch, ascending.
function pieces(r, size) {
  const found = new Set(), start = array(r.array).start;
  for (const lane of r.lanes) {
    if (lane === null) continue;
    const at = lane + start;
    for (let piece = Math.floor(at / size); piece <= Math.floor((at + r.bytes - 1) / size); piece++) found.add(piece);
  }
  return [...found].sort((a, b) => a - b);
}
function useful(r) {
  const found = new Set();
  for (const at of r.lanes) if (at !== null) found.add(at);
  return found.size * r.bytes;
}
const ideal_sectors = (r) => Math.ceil((r.active * r.bytes) / SECTOR);
// Shared memory serves lanes in groups that ask for at most 128 bytes: for each the distinct words of each bank.
function bank_groups(r) {
  const groups = r.bytes <= WORD ? 1 : r.bytes <= 8 ? 2 : 4, lanes = LANES / groups, found = [];
  for (let group = 0; group < groups; group++) {
    const banks = Array.from({ length: BANKS }, () => new Map());
    for (let lane = group * lanes; lane < (group + 1) * lanes; lane++) {
      const at = r.lanes[lane];
      if (at === null) continue;
      for (let word = Math.floor(at / WORD); word <= Math.floor((at + r.bytes - 1) / WORD); word++) {
        const bank = banks[word % BANKS];
        bank.set(word, [...(bank.get(word) || []), lane]);
      }
    }
    const passes = Math.max(...banks.map((bank) => bank.size));
    if (passes) found.push({ first: group * lanes, last: (group + 1) * lanes - 1, banks, passes });
  }
  return found;
}
// An element's name: x[0, 0, 3, 4].
function element_of(number, offset) {
  const a = array(number);
  if (!a) return "";
  let at = Math.floor(offset / a.item);
  const index = [];
  for (const size of [...a.shape].reverse()) { index.unshift(at % size); at = Math.floor(at / size); }
  if (at && index.length) index[0] += at * a.shape[0];
  return `${a.name}[${index.join(", ")}]`;
}
// Light to dark ground alike, the text in them is black: a colour for each lane.
const lane_colour = (lane) => `hsl(${(lane * 300) / 31} 75% ${lane % 2 ? 74 : 80}%)`;

// Totals of a kernel's counts that fit.
function total(counts, field, fits = () => true) {
  return counts.reduce((sum, count) => sum + (fits(count) ? count[field] : 0), 0);
}
const GLOBAL = (c) => c.space === "global";
const SHARED = (c) => c.space === "shared" || c.space === "remote";
const MEMORY = (c) => GLOBAL(c) || SHARED(c);
