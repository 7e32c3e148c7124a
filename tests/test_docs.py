"""Links, commands, examples and pictures of the documentation work."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from doc_scripts import script, texts

from mini_dnn.cli import main
from mini_dnn.device import Device
from mini_dnn.nn.models import lenet
from mini_dnn.nn.weights import load
from mini_dnn.ops.conv2d import OPERATION, ConvShape
from mini_dnn.paths import ROOT
from mini_dnn.running.runner import run
from mini_dnn.running.verify import verify
from mini_dnn.variant import find, names

FOLDERS = ("benchmarks", "data", "docs", "milestones", "layers", "ladders", "networks")
PAGES = sorted(
    path for pattern in ("*.md", *(f"{folder}/**/*.md" for folder in FOLDERS)) for path in ROOT.glob(pattern)
)
LESSONS = [page.parent for page in PAGES if page.relative_to(ROOT).parts[0] in ("layers", "milestones")]
MILESTONES = sorted(path.name for path in (ROOT / "milestones").glob("m*"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PICTURES = ("network.svg", "sliding_window.svg", "op_times.svg", "resnet18.svg")


def page_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def fenced(path: Path, language: str) -> list[str]:
    return [code for name, code in FENCE.findall(path.read_text()) if name == language]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub generates for the headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return set(map(anchor, headings))


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def help_text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        main([*words, "--help"])
    assert exit_.value.code == 0
    return capsys.readouterr().out


def verbs(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return re.findall(r"^    (\w+)  ", help_text(capsys), re.MULTILINE)


def commands(path: Path) -> list[str]:
    """The arguments of ``run.py`` in the code blocks and the inline code of a page."""
    text = path.read_text()
    shell = "".join(re.sub(r"^\$ ", "", code, flags=re.MULTILINE) for _, code in FENCE.findall(text))
    inline = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    lines = [line.removeprefix("python ") for line in (*shell.splitlines(), *inline)]
    return [line.removeprefix("run.py ") for line in lines if line.startswith("run.py ")]


def test_there_are_pages() -> None:
    assert {"README.md", "CONTRIBUTING.md", "layers/custom/README.md"} <= set(map(page_id, PAGES))
    assert {f"milestones/{name}/README.md" for name in MILESTONES} <= set(map(page_id, PAGES))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_and_images_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page_id(page)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page_id(page)} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_have_real_verbs_and_flags(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = verbs(capsys)
    for command in commands(page):
        words = shlex.split(command, comments=True)
        verb = "infer" if words[0].startswith("-") else words[0]
        if verb == "VERB":
            continue
        assert verb in known, f"{page_id(page)}: run.py {command}"
        flags = set(re.findall(r"--[a-z][a-z-]*", help_text(capsys, verb)))
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= flags, f"{page_id(page)}: run.py {command}"


def test_the_lab_notebook_lists_its_entries() -> None:
    index = ROOT / "benchmarks/NOTES.md"
    listed = re.findall(r"\]\((notes/\w+\.md#[^)]+)\)", index.read_text())
    for page in (index.parent / "notes").glob("*.md"):
        entries = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert [link for link in listed if link.startswith(f"notes/{page.name}#")] == [
            f"notes/{page.name}#{anchor(entry)}" for entry in entries
        ]


def test_commands_are_found() -> None:
    found = commands(ROOT / "README.md")
    assert "--batch 1000 --impl m2 --check" in found
    assert "list softmax" in found


def test_every_verb_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Between the usage and the arguments."""
    for verb in verbs(capsys):
        _, about, *_ = help_text(capsys, verb).split("\n\n")
        assert about.endswith("."), verb


def test_readme_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    section = (ROOT / "README.md").read_text().split("## The command line")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == verbs(capsys)


@pytest.mark.whole
def test_the_map_leads_to_files() -> None:
    cells = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "map.md").read_text(), re.MULTILINE)
    assert len(cells) > 10
    for cell in cells:
        folder = ROOT
        for name in re.findall(r"`([^`]+)`", cell):
            place = next(root / name for root in (folder, ROOT) if (root / name).exists())
            folder = place.parent  # `a/b.py`, `c.py`: files in the same folder


def test_readme_settings_are_the_makefiles() -> None:
    defaults = dict(re.findall(r"^(\w+) \?= (\w+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    rows = re.findall(r"^\| `([A-Z]+)` \| (\w+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert dict(rows) == defaults


@pytest.mark.parametrize("milestone", MILESTONES)
def test_a_lesson_mentions_each_of_its_variants(milestone: str) -> None:
    text = (ROOT / "milestones" / milestone / "README.md").read_text()
    for name in names():
        if name.startswith(f"{milestone}/"):
            folder = name.partition("/")[2]
            assert f"`{name}`" in text or f"`{folder}`" in text, f"{milestone}/README.md is silent on {name}"


@pytest.mark.parametrize("folder", LESSONS, ids=page_id)
def test_a_lesson_names_only_what_is_in_the_code(folder: Path) -> None:
    shared = (ROOT / "layers/custom").glob("*.cu*")  # the other kernels on quads include these
    package = [*(ROOT / "mini_dnn").glob("*.py"), *(ROOT / "mini_dnn/include").rglob("*.cuh"), *shared]
    sources = [*folder.rglob("kernel.cu"), *folder.rglob("variant.py"), *package]
    code = "\n".join(source.read_text() for source in sources)
    text = FENCE.sub("", (folder / "README.md").read_text())
    named = {
        name for name in re.findall(r"`(\w+)(?:\(\w*\))?`", text) if "_" in name.strip("_") or name.isupper()
    }
    known = {name.rpartition("/")[2] for name in names()} | {"LDC"}  # LDC is an instruction
    assert {name for name in named - known if not re.search(rf"\b{name}\b", code)} == set()


@pytest.mark.parametrize("shape", [ConvShape(3, 1, 12, 11, 4, 7, 7), ConvShape(2, 3, 9, 8, 5, 2, 3)])
def test_the_example_of_contributing(shape: ConvShape, tmp_path: Path, device: Device) -> None:
    page = ROOT / "CONTRIBUTING.md"
    (tmp_path / "variant.py").write_text(fenced(page, "python")[0])
    (tmp_path / "kernel.cu").write_text(fenced(page, "cuda")[0])
    arrays = OPERATION.inputs(shape, seed=0)
    outputs = run(find(tmp_path), shape, arrays, device).outputs
    result = verify(OPERATION, shape, arrays, outputs)
    assert result.ok, str(result)


def test_the_example_of_the_readme() -> None:
    (code,) = fenced(ROOT / "README.md", "python")
    scope: dict[str, object] = {}
    exec(code, scope)
    y = scope["y"]
    assert isinstance(y, np.ndarray)
    assert f"{y.shape}" in code
    assert np.isfinite(y).all()


@pytest.mark.whole
def test_the_output_in_the_readme_is_what_the_program_says_now() -> None:
    (output,) = fenced(ROOT / "README.md", "console")
    variant = find("m3")
    assert f"variant   {variant.name}: {variant.idea}\n" in output
    stored = load(lenet.default_weights("fashion-mnist"), lenet.build(np.random.default_rng(0))).accuracies
    assert f"Test Accuracy: {stored[1000]:.4f} (agrees with {stored[1000]:.4f}, stored" in output


def test_pictures_say_what_would_be_drawn_now(tmp_path: Path) -> None:
    script("pictures").main(tmp_path)
    for name in PICTURES:
        drawn = texts(tmp_path / name)
        assert drawn
        assert texts(ROOT / "docs" / name) == drawn, f"{name} is behind: python docs/pictures.py"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=page_id)
def test_pages_are_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 250
