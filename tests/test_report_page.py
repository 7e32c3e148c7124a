"""The report in a browser: switches, sorting, filters, sources, and the narrow window of a phone."""

import json
from pathlib import Path

import pytest
from browser import Browser, Page
from contrast import contrast
from report_records import CEILINGS, both, fake_full, fake_peers, fake_record, fake_row, stored

from mini_dnn import ops
from mini_dnn.report.board import boards
from mini_dnn.report.headline import ladder_table, sentence
from mini_dnn.report.ladder import PLACES, Ladder, ladder_of, notes
from mini_dnn.report.load import load
from mini_dnn.report.page import write_report
from mini_dnn.report.rivals import peers_table
from mini_dnn.report.theme import DARK, LIGHT
from mini_dnn.variant import find, names

EMPTY = b'<svg xmlns="http://www.w3.org/2000/svg"/>'  # in the place of each plot
GEMM = {"gemm/v0_naive": 200.0, "gemm/v1_coalesced": 20.0, "gemm/v4_wmma": 0.5, "gemm/v8_final": 0.2}
SEEN = (
    "[...document.querySelectorAll('.part')[0].querySelectorAll('table[data-table=variants] tbody')[0].rows]"
)
SUMS = f"{SEEN}.filter(row => !row.hidden).map(row => row.cells[5].textContent)"
VARIANTS = f"{SEEN}.filter(row => !row.hidden).map(row => row.cells[0].textContent)"
TIMES = "[...document.querySelectorAll('[data-table=ladder] .track > span')].map(e => e.textContent)"
POINTS = "document.querySelectorAll('.part')[0].querySelectorAll('.point').length"
FOCUSED = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"


def gemm_rows() -> list[dict[str, object]]:
    return [
        fake_row(name, 1, problem, ms * factor, accuracy=None)
        for name, ms in GEMM.items()
        for problem, factor in (("fp16-4096", 1.0), ("fp16-1024", 0.02))
    ]


def linear_rows() -> list[dict[str, object]]:
    """Two variants at six problems. Three of them have nearly the same FLOPs per byte."""
    return [
        fake_row(name, 32, problem, ms, accuracy=None)
        for name, ms in (("linear/v0_naive", 198.4), ("linear/v1_tiles", 0.1974))
        for problem in ops.find("linear").course
    ]


def ladder_from(folder: Path, rows: list[dict[str, object]], op: str) -> Ladder:
    found = boards(load([stored(folder, fake_record(rows, memory=CEILINGS))]))
    ladder = ladder_of(next(board for board in found if board.operation.name == op))
    assert ladder is not None
    return ladder


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on three operations without the plots, which the script does not use."""
    folder = tmp_path_factory.mktemp("report")
    record = fake_full()
    record["rows"] = [row for row in record["rows"] if row["batch"] == 10000]
    record["rows"] += gemm_rows() + linear_rows()
    del record["sweeps"]
    files = [stored(folder, record), stored(folder, fake_peers(), "peers.json")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mini_dnn.report.theme._render", lambda draw, on, form: EMPTY)
        write_report(load(files), folder / "out")
    return folder / "out" / "index.html"


@pytest.fixture
def page(report: Path, browser: Browser) -> Page:
    return browser.open(report)


def test_sorting_filters_and_switches(page: Page) -> None:
    sums = page.run(SUMS)
    page.click("table[data-table=variants] th:nth-child(6) button")
    assert page.run(SUMS) == sorted(sums, key=lambda text: float(text.replace(",", "")))
    page.run("document.activeElement.blur()")
    page.run("document.querySelector('table[data-table=variants] th:nth-child(6) button').focus()")
    page.press("Enter")
    assert page.run(SUMS) == sorted(sums, key=lambda text: -float(text.replace(",", "")))
    page.press("Enter")
    assert page.run(SUMS) == sums, "the third time is the order of the ladder again"
    everything = page.run(POINTS)
    page.click(".part input[value=tf32]")
    assert page.run(VARIANTS) == [name for name in names("conv2d") if find(name).precision == "tf32"]
    assert 0 < page.run(POINTS) < everything
    page.click(".part input[value='']:not([name=choice-0])")
    page.run(
        "search = document.querySelector('input[type=search]'); search.value = 'stack'; "
        "search.dispatchEvent(new Event('input'))"
    )
    assert page.run(VARIANTS) == ["m3/stack_1", "m3/stack_2"]
    assert page.run("document.querySelector('.count').textContent").startswith("2 of ")
    before = page.run(TIMES)
    page.click(".part input[value=conv1]")
    after = page.run(TIMES)
    assert len(before) == len(after)
    assert before != after
    assert page.run(POINTS) == everything / 2
    assert page.messages == []


def test_keys_reach_every_point_and_its_sources(page: Page) -> None:
    page.run("document.querySelector('.point').focus()")
    first = page.run(FOCUSED)
    page.press("ArrowDown")
    assert page.run(FOCUSED) != first
    assert not page.run("tip.hidden")
    page.press("Enter")
    assert page.run("dialog.open")
    shown = page.run("document.getElementById('variant-name').textContent")
    assert shown in names("conv2d")
    assert page.run("dialog.querySelector('pre').textContent").startswith(f"// {shown}: ")
    page.run("[...dialog.querySelectorAll('.tab')].at(-1).focus()")
    assert "+// " in page.run("dialog.querySelector('pre').textContent")
    page.press("Escape")
    assert not page.run("dialog.open")
    assert page.messages == []


OVERLAPS = """(() => {
  const box = node => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect();
  };
  const meet = (a, b) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 5 && b.top < a.bottom - 5;
  const found = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const texts = [...chart.querySelectorAll("text.halo:not(.soft), .badge-text")];
    texts.forEach((one, at) => texts.slice(at + 1).forEach(other => {
      if (meet(box(one), box(other))) found.push([one.textContent, other.textContent]);
    }));
  }
  for (const cell of document.querySelectorAll("td:has(> .bar)")) {
    const number = box(cell.lastChild), bar = cell.firstChild.getBoundingClientRect();
    const inside = bar.right < number.left && number.right < cell.getBoundingClientRect().right;
    if (!inside) found.push(cell.outerHTML);
  }
  return found;
})()"""


def test_no_names_and_numbers_overlap(page: Page) -> None:
    assert page.run("document.querySelectorAll('.part')[2].querySelectorAll('.point').length") == 12
    assert page.run(OVERLAPS) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_scrolls_tables_and_not_the_page(report: Path, browser: Browser, dark: bool) -> None:
    page = browser.open(report, width=400, dark=dark)
    assert page.overflow == 0
    page.run("all = [...document.querySelectorAll('.scroll')].find(e => e.scrollWidth > e.clientWidth + 50)")
    page.run("all.scrollLeft = 1000")
    box = "all.querySelector('tbody th').getBoundingClientRect()"
    assert page.run(f"{box}.left >= all.getBoundingClientRect().left - 1"), "the first column stays"
    assert page.run(POINTS) > 0
    assert page.messages == []


def test_numbers_of_rungs_can_be_read() -> None:
    """WCAG 2.1 AA requires a contrast of 4.5 for text, here the number on a rung's colour."""
    for theme in (LIGHT, DARK):
        for colour in theme.ramp(16):
            assert contrast(colour, theme.ground) >= 4.5, (colour, theme.ground)


@pytest.mark.whole
def test_ladders_name_rungs_that_build_on_each_other() -> None:
    found = notes()
    assert {"conv2d", "gemm", "attention", "resnet", "vit"} <= set(found)
    assert len(PLACES) == 4
    for op, said in found.items():
        chain = [find(name) for name in said.limits]
        assert {variant.op for variant in chain} | {find(name).op for name in said.rivals} == {op}
        assert [variant.parent for variant in chain[1:]] == [variant.name for variant in chain[:-1]]
        assert not said.problem or said.problem in ops.find(op).course


def test_a_ladder_without_a_rung_in_the_middle(tmp_path: Path) -> None:
    ladder = ladder_from(tmp_path, gemm_rows(), "gemm")
    assert ladder.problems == ["fp16-4096"]
    assert len(ladder.rungs) == 9
    assert [rung.variant for rung in ladder.measured] == list(GEMM)
    rows = {row[0]: row[1:] for row in ladder_table(ladder).rows}
    assert rows["2. `gemm/v1_coalesced`"][:2] == ["20.0", "10.0×"]
    assert rows["2. `gemm/v1_coalesced`"][2] == notes()["gemm"].limits["gemm/v0_naive"]
    assert rows["6. `gemm/v5_mma_async`"][:2] == ["not measured", "–"]
    assert rows["9. `gemm/v8_final`"][1] == "–", "the rung before was not measured"
    text = sentence(ladder.board)
    assert text.startswith(
        "`gemm/v8_final` takes 0.200 ms for `fp16-4096` at the course's sizes: 1,000× as fast"
    )


@pytest.mark.whole
@pytest.mark.parametrize("op", ["resnet", "vit", "attention"])
def test_every_ladder_has_its_sentence(op: str, tmp_path: Path) -> None:
    said = notes()[op]
    problem = said.problem or next(iter(ops.find(op).course))
    batch = ops.find(op).course[problem].batch
    rows = [fake_row(name, batch, problem, 8.0 / 2**at, accuracy=None) for at, name in enumerate(said.limits)]
    ladder = ladder_from(tmp_path, rows, op)
    assert [rung.variant for rung in ladder.measured] == list(said.limits)
    assert f"{2 ** (len(rows) - 1):,}×" in sentence(ladder.board).replace(".00×", "×").replace(".0×", "×")


def test_the_honest_rival_is_the_fastest(tmp_path: Path) -> None:
    run = fake_peers()
    fast = [row | {"peer": "other", "op_ms": row["op_ms"] / 2, "precision": "fp16"} for row in run["rows"]]
    run["rows"] += fast
    (tmp_path / "peers.json").write_text(json.dumps(run))
    ours = stored(tmp_path, fake_record(both("m1/direct", 24.0, 24.0) + both("layers/custom", 1.0, 2.0)))
    (board,) = boards(load([ours, tmp_path / "peers.json"]))
    assert [row[0] for row in peers_table(board).rows] == ["other", "cuDNN"]
    assert sentence(board).endswith("2.00× as fast as the fastest library, other (fp16, NCHW).")


LOW_CONTRAST = """(() => {
  const pixel = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const parts = colour => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = colour;
    pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  };
  const linear = part => part <= 0.03928 * 255 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const found = [];
  document.querySelectorAll("details").forEach(one => { one.open = true; });
  for (const element of document.querySelectorAll("body *:not(script, style, .badge-text)")) {
    const hasText = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!hasText || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    let ground = element;
    while (ground && parts(getComputedStyle(ground).backgroundColor)[3] < 255) ground = ground.parentElement;
    const pair = [element instanceof SVGElement ? style.fill : style.color,
                  ground ? getComputedStyle(ground).backgroundColor : "#fff"];
    const [dark, light] = pair.map(colour => luminance(parts(colour))).sort((a, b) => a - b);
    if ((light + 0.05) / (dark + 0.05) < 4.5) found.push(element.outerHTML.slice(0, 80));
  }
  return found;
})()"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_text_can_be_read(report: Path, browser: Browser, dark: bool) -> None:
    """WCAG 2.1 AA requires a contrast of 4.5."""
    page = browser.open(report, dark=dark)
    assert page.run(LOW_CONTRAST) == []
    page.run("document.querySelector('h2').style.color = getComputedStyle(document.body).backgroundColor")
    assert len(page.run(LOW_CONTRAST)) == 1, "what is too pale is found"
