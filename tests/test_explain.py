"""``run.py explain``: the totals of the counters, the findings, and the page in a browser."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from planted import CHANGES, plant, slow_lines

from mini_dnn.cli import main
from mini_dnn.device.emulator.counted import CountedArray, CountedLaunch, Place
from mini_dnn.device.emulator.counted_interface import LANES, RECORD, EventKind, Space
from mini_dnn.explain.blocks import Tables, encode, footprints, position
from mini_dnn.explain.collect import worth_a_look
from mini_dnn.explain.kernels import Trace
from mini_dnn.explain.page import MARK, WEB, level
from mini_dnn.explain.steps import flights, steps, wavefronts
from mini_dnn.paths import ROOT

SIZES = "2,1,40,41,3,3,2"
SOURCE = Path(__file__).parent / "kernels" / "memory.cu"
ALL = 0xFFFFFFFF


def data_of(page: Path) -> dict[str, Any]:
    match = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert match
    found: dict[str, Any] = json.loads(match[1])
    return found


def records(*rows: tuple[int, EventKind, Space, int]) -> np.ndarray:
    """Records of one block: warp, kind, memory, and the bytes between two lanes."""
    found = np.zeros(len(rows), RECORD)
    for record, (warp, kind, space, stride) in zip(found, rows, strict=True):
        record["warp"], record["kind"], record["space"], record["mask"] = warp, kind, space, ALL
        record["bytes"], record["offsets"] = 4, stride * np.arange(LANES)
        record["array"] = -1 if space is Space.NONE else 0
    return found


def launch_of(found: np.ndarray, shape: tuple[int, ...] = (4, 32)) -> CountedLaunch:
    return CountedLaunch(
        kernel="kernel",
        source=SOURCE,
        library=SOURCE,
        defines={},
        grid=(2, 1, 1),
        block=(64,),
        shared_bytes=0,
        static_bytes=0,
        arrays=(CountedArray("x", "global", shape, 4, 0, 16),),
        names=("",),
        places={0: Place(str(SOURCE), 3)},
        totals=np.zeros(0),
        records=found,
        records_left_out=False,
    )


LOAD = (EventKind.LOAD, Space.GLOBAL, 4)
BARRIER = (EventKind.BARRIER, Space.NONE, 0)


def test_warps_leave_a_barrier_together() -> None:
    found = steps(records((0, *LOAD), (0, *BARRIER), (0, *LOAD), (1, *LOAD), (1, *LOAD), (1, *BARRIER)))
    assert found.begin.tolist() == [0, 1, 3, 0, 1, 2]
    assert found.end.tolist() == [1, 3, 4, 1, 2, 3]
    assert found.count == 4


def test_a_conflict_takes_a_step_more() -> None:
    two_way = (EventKind.LOAD, Space.SHARED, 8)
    assert steps(records((0, *two_way), (0, *LOAD))).end.tolist() == [2, 3]


def test_a_copy_in_bulk_is_one_step() -> None:
    pieces = [(0, EventKind.COPY_LOAD, Space.GLOBAL, 4), (0, EventKind.COPY_TO, Space.SHARED, 4)] * 3
    found = records((0, EventKind.EVENT, Space.NONE, 0), *pieces, (0, *LOAD))
    found["pc"] = [1] * 7 + [2]
    found["bytes"][1:7] = 128
    assert steps(found).end.tolist() == [1] * 7 + [2]
    found["bytes"][1:7] = (
        16  # for cp.async each lane starts its own copy, and each iteration is an instruction
    )
    assert steps(found).end.tolist() == [1, 2, 2, 3, 3, 4, 4, 5]


def test_a_wait_for_an_mbarrier_ends_after_the_arrivals_of_its_phase() -> None:
    event = (EventKind.EVENT, Space.SHARED, 0)
    arrive, wait = 1, 2
    producer = [(wait, 8, 1), (0, 0, 0), (arrive, 0, 0), (wait, 8, 0), (arrive, 0, 0)]
    consumer = [(wait, 0, 0), (0, 0, 0), (0, 0, 0), (arrive, 8, 0), (wait, 0, 1)]
    found = records(*((warp, *event) for warp in (0, 1) for _ in range(5)))
    for record, (name, offset, number) in zip(found, producer + consumer, strict=True):
        record["name"], record["offsets"], record["number"] = name, offset, number
    order = steps(found, ("", "mbarrier_arrive", "mbarrier_wait"))
    assert order.end.tolist() == [1, 2, 3, 8, 9, 4, 5, 6, 7, 10]
    assert order.begin.tolist() == [0, 1, 2, 3, 8, 0, 4, 5, 6, 7]


def test_a_copy_is_on_its_way_until_its_warp_waits() -> None:
    load, wait = (EventKind.COPY_LOAD, Space.GLOBAL, 16), (EventKind.EVENT, Space.NONE, 0)
    found = records((0, *load), (0, *LOAD), (0, *wait), (0, *load), (1, *LOAD), (1, *wait))
    found["name"][[2, 5]] = 1
    assert flights(found, steps(found), ("", "cp_async_wait")) == [(0, 0, 3)]


@pytest.mark.parametrize(
    ("stride", "nbytes", "expected"),
    [
        (4, 4, (1, 1)),
        (0, 4, (1, 1)),  # a broadcast
        (8, 4, (2, 1)),
        (128, 4, (32, 1)),
        (132, 4, (1, 1)),  # a row of 33 words
        (8, 8, (2, 2)),
        (16, 16, (4, 4)),
        (32, 16, (8, 4)),
        (2, 2, (1, 1)),
    ],
)
def test_wavefronts(stride: int, nbytes: int, expected: tuple[int, int]) -> None:
    assert wavefronts(tuple(stride * lane for lane in range(LANES)), ALL, nbytes) == expected


def test_lanes_that_are_off_take_no_wavefront() -> None:
    assert wavefronts(tuple(128 * lane for lane in range(LANES)), 0b101, 4) == (2, 1)


def test_what_a_block_uses_of_an_array() -> None:
    found = records((0, *LOAD), (0, *LOAD), (1, EventKind.STORE, Space.GLOBAL, 8))
    found["offsets"][1] += 16 * 4
    reads, writes = footprints(found, launch_of(found))
    assert reads == {"array": 0, "writes": False, "runs": [0, 16, 1, 0, 16, 2, 0, 16, 1]}
    assert writes["writes"]
    assert writes["runs"][:6] == [0, 1, 1, 1, 1, 1], "every other element"
    assert len(writes["runs"]) == 3 * 32


def test_a_block_that_is_cut_keeps_the_first_steps_of_all_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.explain.blocks.LEAST_RECORDS", 1)
    found = records(*((warp, *LOAD) for warp in (0, 1) for _ in range(10)))
    launch = launch_of(found)
    tables = Tables(launch, {Place(str(SOURCE), 3): (0, 3)})
    block = encode(Trace(1, found, steps(found)), launch, tables, most=8)
    assert (block["at"], block["records"]) == ([1, 0, 0], 20)
    assert block["warp"] == [0] * 4 + [1] * 4
    assert block["step"] == [0, 1, 2, 3] * 2
    assert block["arrays"][0]["runs"] == [0, 32, 20], "of all records"
    assert tables.operations == [[0, 3, EventKind.LOAD, Space.GLOBAL, 0, 4, 0, 0]]
    assert tables.patterns == [[ALL, 4]]
    assert len(encode(Trace(1, found, steps(found)), launch, tables, most=20)["op"]) == 20


def test_blocks_that_are_worth_a_look() -> None:
    assert worth_a_look((1,)) == [0]
    assert worth_a_look((4, 3, 2)) == [0, 1, 4, 12, 18, 23]
    assert position(18, (4, 3, 2)) == [2, 1, 1]


def test_room_is_shared_out() -> None:
    assert level([10, 10], 100) == 10
    assert level([10, 1000, 1000], 110) == 50
    assert level([], 5) == 0


def explained(folder: Path, *words: str) -> Path:
    """The page of a variant."""
    page = folder.with_name("page.html")
    page.write_text(f"<!doctype html>{MARK}")  # an earlier page is replaced
    assert main(["explain", *words, "--shape", SIZES, "--out", str(page)]) == 0
    return page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a kernel with bank conflicts, and of another one without."""
    folder = plant("conflicts", tmp_path_factory.mktemp("pages") / "conflicts")
    return explained(folder, str(folder), "--beside", "m1/direct")


def test_the_page_names_the_line_of_a_planted_conflict_and_needs_nothing_else(page: Path) -> None:
    planted, shipped = data_of(page)["variants"]
    assert shipped["name"] == "m1/direct"
    assert {finding["kind"] for finding in shipped["kernels"][0]["findings"]} == {"redundant"}
    found = planted["kernels"][0]["findings"]
    assert found[0]["kind"] == "conflicts"
    lines = {finding["line"] for finding in found if finding["kind"] == "conflicts"}
    assert lines == slow_lines(page.with_name("conflicts"))
    text = page.read_text()
    assert MARK in text[:1000]
    assert not re.search(r"""(src|href)=["'](?!#)|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", text)
    assert len(text) < 3_000_000


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", sorted(CHANGES.keys() - {"conflicts"}))
def test_planted_slowness_is_found_with_its_line(kind: str, tmp_path: Path) -> None:
    """The page names the lines of its first finding."""
    folder = plant(kind, tmp_path / kind)
    (kernel,) = data_of(explained(folder, str(folder)))["variants"][0]["kernels"]
    found = kernel["findings"]
    assert found[0]["kind"] == kind
    assert {finding["line"] for finding in found if finding["kind"] == kind} == slow_lines(folder)


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.html"
    mine.write_text("<title>my site</title>")
    out = ["--out", str(tmp_path / "page.html")]
    for words, message in (
        (["cpu", *out], "has no kernels"),
        (["m1", "--beside", *out], "--beside m1/cpu: it is NumPy and runs on the host"),
        (["m1", "--beside", "softmax/v1", *out], "computes softmax"),
        (["gemm/v0", "--beside", *out], "has no parent"),
        (["m1", "--out", str(mine)], "--force"),
        (["m1", "--shape", "1,2", *out], "--shape"),
    ):
        assert main(["explain", *words]) == 2, words
        assert message in capsys.readouterr().err
    assert mine.read_text() == "<title>my site</title>"
    assert not (tmp_path / "page.html").exists()


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


MARKS = [
    "load",
    "store",
    "shared",
    "copy",
    "product",
    "barrier",
    "wait",
    "other",
    "heat",
    "a",
    "b",
    "both",
    "edge",
]


def test_contrast() -> None:
    """WCAG AA requires 4.5 for text, and 3 for other meaningful elements."""
    style = (WEB / "style.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-fA-F]{6});", part)) for part in style.split("@media", 2)[:2]
    )
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for theme in (light, light | dark):
        for ground in ("ground", "panel", "chosen"):
            for text in ("text", "soft", "accent", "bad", "good", "keyword", "comment", "number", "call"):
                assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground, theme[text], theme[ground])
        for mark in MARKS:
            assert contrast(theme[mark], theme["ground"]) >= 3, (mark, theme[mark])


PRESS = """
const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const words = (id) => document.getElementById(id).textContent;
const change = (id, value, kind = "change") => {
  const element = document.getElementById(id);
  element.value = value;
  element.dispatchEvent(new Event(kind));
};
"""
TOUR = (
    PRESS
    + """
const found = { ready: document.documentElement.dataset.ready, first: words("warp-text") };
document.getElementById("next").click(); found.next = words("warp-text");
press(document.getElementById("next"), "ArrowLeft"); found.back = words("warp-text");
change("choose-warp", 3); found.warp = words("warp-text");
const timeline = document.getElementById("timeline");
press(timeline, "ArrowUp"); found.up = words("warp-text");
press(timeline, "ArrowRight"); found.right = words("warp-text");
const row = document.querySelector('#code tr[tabindex="0"]'); press(row, "Home");
found.home = document.querySelector('#code tr[aria-selected="true"]').dataset.line;
found.focus = document.activeElement.dataset.line;
found.stops = document.querySelectorAll('#code tr[tabindex="0"]').length;
document.querySelector("#finding-list button").click();
found.finding = document.querySelector('#code tr[aria-selected="true"]').dataset.line;
found.banks = document.querySelectorAll("#warp-picture rect").length;
found.table = document.querySelectorAll("#warp-table tbody tr").length;
const grid = words("grid-text"); change("choose-other", 3); found.grid = [grid, words("grid-text")];
change("choose-block", 1); found.block = words("block-text");
change("zoom", 100, "input");
found.zoomed = timeline.scrollWidth > timeline.clientWidth;
const canvas = document.getElementById("timeline-canvas");
found.drawn = new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size;
change("choose-variant", 1); found.other = words("title");
const named = (e) => e.labels?.length || e.textContent.trim() || e.getAttribute("aria-label");
const controls = [...document.querySelectorAll("button, select, input")];
found.unnamed = controls.filter((e) => !named(e)).map((e) => e.outerHTML);
return found;
"""
)


def test_the_page_answers_in_a_browser(page: Path, browser: Browser) -> None:
    opened = browser.open(page)
    found = opened.run(f"(async () => {{{TOUR}}})()")
    assert opened.messages == []
    assert found["ready"] == "yes"
    line = re.match(r"Line (\d+), warp 0: loads", found["first"])
    assert line
    assert found["next"] != found["first"]
    assert found["back"] == found["first"]
    assert found["warp"].startswith(f"Line {line[1]}, warp 3: ")
    assert found["up"].startswith(f"Line {line[1]}, warp 2: ")
    assert "warp 2: " in found["right"]
    assert found["right"] != found["up"]
    source = (page.with_name("conflicts") / "kernel.cu").read_text().splitlines()
    # The first statement that does something
    first = 1 + source.index("  const int P = H - R + 1, Q = W - S + 1;")
    assert found["home"] == found["focus"] == str(first)
    assert found["stops"] == 1
    assert found["finding"] == line[1]
    assert found["banks"] >= LANES
    assert found["table"] == LANES
    assert found["grid"][0] != found["grid"][1]
    assert "Block (1, 0, 0)" in found["block"]
    assert found["zoomed"]
    assert found["drawn"] > 20
    assert found["other"].startswith("m1/direct")
    assert found["unnamed"] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(("width", "dark"), [(400, False), (1920, True)])
def test_the_page_fits_from_phone_to_projector(width: int, dark: bool, page: Path, browser: Browser) -> None:
    dark_now = "matchMedia('(prefers-color-scheme: dark)').matches"
    opened = browser.open(page, width=width, dark=dark)
    assert opened.run(f"[innerWidth, {dark_now}]") == [width, dark]
    assert opened.overflow == 0
    assert opened.messages == []


@pytest.mark.exhaustive
def test_lessons_pictures_say_what_would_be_drawn_now(tmp_path: Path) -> None:
    """The third picture would take too long to count here."""
    docs = ROOT / "docs"
    command = [sys.executable, docs / "lessons.py", tmp_path, "coalescing", "reuse"]
    drawing = subprocess.run(command, check=False, capture_output=True, text=True)
    assert drawing.returncode == 0, drawing.stderr
    pictures = sorted(tmp_path.glob("*.svg"))
    assert len(pictures) == 2
    for path in pictures:
        drawn = re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text())
        shown = re.findall(r"<text[^>]*>([^<]+)</text>", (docs / path.name).read_text())
        assert drawn
        assert shown == drawn, f"{path.name} is behind: python docs/lessons.py"
