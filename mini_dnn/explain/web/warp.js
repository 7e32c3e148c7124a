// The warp view: one access of 32 lanes, its sectors or its banks.
const CELL = 22, LABEL = 15, MOST_LINES = 32, FEW_LINES = 8, MOST_PASSES = 32;

function warp_words(r) {
  const a = array(r.array), doing = { load: "loads", store: "stores", atomic: "updates", constant: "loads (read-only path)",
    copy_load: "copies from", copy_store: "copies to", copy_to: "a copy writes", copy_from: "a copy reads", tile_load: "loads a tile of",
    tile_store: "stores a tile of" }[r.kind];
  const head = `Line ${r.line}, warp ${r.warp}: `;
  if (!moves(r)) return `${head}${r.name || r.kind}, ${many(r.active, "lane")} active.`;
  const start = `${head}${doing || r.kind} ${a.name}, ${r.active} of 32 lanes, ${r.bytes} bytes each. `;
  if (is_copy(r) && is_shared(r)) return `${start}A bulk copy of ${many(useful(r), "byte")}. No thread waits for it here.`;
  if (is_shared(r)) {
    const groups = bank_groups(r), passes = groups.reduce((sum, g) => sum + g.passes, 0);
    const most = Math.max(...groups.map((g) => g.passes));
    if (passes === groups.length) return `${start}No two lanes need different words of the same bank: ${many(passes, "pass", "passes")}, the minimum.`;
    return `${start}Lanes need ${most} different words of one bank, which it delivers one after the other: ${many(passes, "pass", "passes")}, although ${groups.length} would be enough.`;
  }
  const sectors = pieces(r, SECTOR).length, bytes = useful(r), ideal = ideal_sectors(r);
  return `${start}${many(bytes, "useful byte")} in ${many(sectors, "sector")} of 32 bytes: ${percent(bytes, sectors * SECTOR)} of ` +
    `${whole(sectors * SECTOR)} bytes are used; ${sectors > ideal ? `${many(ideal, "sector")} would be enough.` : "the minimum."}`;
}

function text_at(x, y, words, attributes = {}) { return make("text", { x, y, ...attributes }, words); }
function lane_strip(r) {
  const group = make("g", {});
  group.append(text_at(0, 11, "lanes"));
  for (let lane = 0; lane < LANES; lane++) {
    const at = r.lanes[lane], x = lane * CELL, y = LABEL;
    const box = make("rect", { x, y, width: CELL, height: CELL, class: "cell" });
    if (at !== null) box.style.fill = lane_colour(lane);
    box.append(make("title", {}, at === null ? `lane ${lane}: idle` : `lane ${lane}: ${element_of(r.array, at)}, byte ${at}`));
    group.append(box, text_at(x + CELL / 2, y + 15, at === null ? "·" : lane, { class: at === null ? "soft" : "in", "text-anchor": "middle" }));
  }
  return group;
}
// What the lanes want of each word, by the word's number.
function wanted_words(r, start) {
  const found = new Map();
  r.lanes.forEach((offset, lane) => {
    if (offset === null) return;
    const at = offset + start;
    for (let word = Math.floor(at / WORD); word <= Math.floor((at + r.bytes - 1) / WORD); word++)
      found.set(word, [...(found.get(word) || []), lane]);
  });
  return found;
}
function word_cell(x, y, lanes, title) {
  const box = make("rect", { x, y, width: CELL, height: CELL, class: "cell" });
  box.style.fill = lane_colour(lanes[0]);
  box.append(make("title", {}, title));
  return [box, text_at(x + CELL / 2, y + 15, lanes.length > 1 ? `${lanes.length}×` : lanes[0], { class: "in" })];
}
function sector_picture(r) {
  const start = array(r.array).start, words = wanted_words(r, start), lines = pieces(r, LINE), sectors = new Set(pieces(r, SECTOR));
  const shown = lines.slice(0, MOST_LINES), top = LABEL + CELL + 26;
  const parts = [lane_strip(r), text_at(0, top - 6, "memory, in lines of 4 sectors of 8 words; a number is the lane that uses the word", { class: "soft" })];
  const gap = shown.length > FEW_LINES ? 3 : LABEL + 4, first = top + LABEL;
  shown.forEach((line, row) => {
    const y = first + row * (CELL + gap);
    if (!row || shown.length <= FEW_LINES) parts.push(text_at(0, y - 4, element_of(r.array, Math.max(0, line * LINE - start))));
    for (let sector = 0; sector < 4; sector++) {
      const fetched = sectors.has(line * 4 + sector);
      for (let word = 0; word < 8; word++) {
        const number = line * 32 + sector * 8 + word, x = (sector * 8 + word) * CELL;
        if (words.has(number)) parts.push(...word_cell(x, y, words.get(number), `${element_of(r.array, Math.max(0, number * WORD - start))}: lanes ${words.get(number).join(", ")}`));
        else parts.push(make("rect", { x, y, width: CELL, height: CELL, class: fetched ? "fetched" : "cell" }));
      }
      if (fetched) parts.push(make("rect", { x: sector * 8 * CELL + 1, y: y - 1, width: 8 * CELL - 2, height: CELL + 2, class: "sector" }));
    }
  });
  const bottom = first + shown.length * (CELL + gap);
  const rest = lines.length - shown.length;
  parts.push(text_at(0, bottom + 12, (rest > 0 ? `and ${many(rest, "line")} more; ` : "") + "framed: a sector that is moved; grey: moved and not used", { class: "soft" }));
  return [parts, bottom + 20];
}
function bank_picture(r) {
  const parts = [lane_strip(r)];
  let y = LABEL + CELL + 38;
  parts.push(text_at(0, y - 20, "banks of shared memory; a number in a cell is the lane that uses the word", { class: "soft" }));
  for (let bank = 0; bank < BANKS; bank++) parts.push(text_at((bank + 0.5) * CELL, y - 5, bank, { class: "soft", "text-anchor": "middle" }));
  for (const group of bank_groups(r)) {
    for (let pass = 0; pass < Math.min(group.passes, MOST_PASSES); pass++) {
      const label = pass ? `pass ${pass + 1}: conflict` : `lanes ${group.first}–${group.last}, pass 1`;
      parts.push(text_at(0, y + 11, label, pass ? { class: "badtext" } : {}));
      y += LABEL;
      group.banks.forEach((words, bank) => {
        const x = bank * CELL, [word, lanes] = [...words][pass] || [];
        if (word === undefined) parts.push(make("rect", { x, y, width: CELL, height: CELL, class: "cell" }));
        else parts.push(...word_cell(x, y, lanes, `bank ${bank}: ${element_of(r.array, word * WORD)}, lanes ${lanes.join(", ")}`),
          pass ? make("rect", { x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, class: "late" }) : null);
      });
      y += CELL + 3;
    }
    y += 6;
  }
  return [parts, y + 4];
}
function show_warp() {
  const r = record(state.record), words = warp_words(r);
  const same = block().warp.map((w, i) => [w, i]).filter(([w, i]) => w === r.warp && block().place[i] === block().place[r.i]).map(([, i]) => i);
  const at = same.indexOf(r.i);
  by("warp-text").textContent = `${words} Access ${at + 1} of ${same.length} at this line.`;
  const warps = [...new Set(block().warp)].sort((a, b) => a - b);
  fill(by("choose-warp"), ...warps.map((w) => make("option", { value: w, selected: w === r.warp }, `${w}`)));
  by("back").disabled = neighbour(-1) === null;
  by("next").disabled = neighbour(1) === null;
  const shared = is_shared(r);
  if (!moves(r) || !r.bytes) fill(by("warp-picture"), make("p", { class: "hint" }, "This step moves no bytes."));
  else {
    const [parts, height] = shared && !is_copy(r) ? bank_picture(r) : sector_picture(r), width = LANES * CELL + 2;
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words }, ...parts.filter(Boolean));
    svg.style.cssText = `width: 100%; min-width: ${Math.round(width * 0.76)}px; max-width: ${Math.round(width * 1.5)}px`;
    fill(by("warp-picture"), svg);
  }
  table(by("warp-table"), ["lane", "element", "byte", shared ? "bank" : "sector"], r.lanes.map((offset, lane) => offset === null ? [lane, "idle", "", ""]
    : [lane, element_of(r.array, offset), offset, shared ? Math.floor(offset / WORD) % BANKS : Math.floor((offset + array(r.array).start) / SECTOR)]), 2);
}
// The next record of this warp, at this line alone if that is asked for.
function neighbour(way) {
  const b = block(), only = by("only-line").checked;
  for (let i = state.record + way; i >= 0 && i < b.warp.length; i += way)
    if (b.warp[i] === b.warp[state.record] && (!only || b.place[i] === b.place[state.record])) return i;
  return null;
}
