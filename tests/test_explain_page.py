"""The page of ``run.py explain``: its findings, its colours, and how it works in a browser."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from contrast import contrast
from planted import CHANGES, plant, slow_lines

from mini_dnn.cli import main
from mini_dnn.device.emulator.counted_interface import LANES
from mini_dnn.explain.page import MARK, WEB
from mini_dnn.paths import ROOT

SIZES = "2,1,40,41,3,3,2"


def data_of(page: Path) -> dict[str, Any]:
    match = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert match
    found: dict[str, Any] = json.loads(match[1])
    return found


def explained(folder: Path, *words: str) -> Path:
    """The page of a variant."""
    page = folder.with_name("page.html")
    page.write_text(f"<!doctype html>{MARK}")  # an earlier page is replaced
    assert main(["explain", *words, "--shapes", SIZES, "--out", str(page)]) == 0
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
        (["gemm/v17", "--beside", *out], "gemm/v10_small does not support"),
        (["m1", "--out", str(mine)], "--force"),
        (["m1", "--shape", "1,2", *out], "--shape"),
    ):
        assert main(["explain", *words]) == 2, words
        told = capsys.readouterr()
        assert message in told.err
        assert "counting" not in told.out
    assert mine.read_text() == "<title>my site</title>"
    assert not (tmp_path / "page.html").exists()


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
