"""Handouts: what they contain and omit, that they reveal no solution, and that they work."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import absent
import pytest

from mini_dnn.cli import main
from mini_dnn.errors import MiniDnnError, UsageError, VariantError
from mini_dnn.grading import rubric
from mini_dnn.handout.copy import write
from mini_dnn.handout.pages import broken_links, word_of
from mini_dnn.handout.parts import Parts, divide
from mini_dnn.handout.sheet import sheet
from mini_dnn.paths import HANDOUT, ROOT
from mini_dnn.variant import find, names
from mini_dnn.variant.given import sources

pytestmark = pytest.mark.whole
Output = pytest.CaptureFixture[str]
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@pytest.fixture(scope="module")
def parts() -> Parts:
    return divide(["m1"])


@pytest.fixture(scope="module")
def handout(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("course") / "handout"
    write(parts, out, {"assignments/m2.md": sheet("m2", None, parts.kept).encode()})
    return out


def files_of(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(
        name for path in paths if not (name := path.relative_to(folder).as_posix()).startswith(".git/")
    )


def told_by(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The output of a program that runs in a folder with the modules of that folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment, check=False)


def test_what_a_handout_has(handout: Path) -> None:
    record = json.loads((handout / HANDOUT.name).read_text())
    assert record["kept"] == ["m1/cpu", "m1/direct", "m1/tiled_direct"]
    assert sorted([*record["kept"], *record["left"]]) == sorted(names())
    timed = [asked for name in rubric.presets() if (asked := rubric.load(name).performance)]
    assert {asked.reference for asked in timed} <= {None, *record["kept"]}
    found = files_of(handout)
    assert [
        name for name in found if name.endswith("variant.py") and name.startswith(("mile", "lay", "lad"))
    ] == [f"milestones/m1/{name}/variant.py" for name in ("cpu", "direct", "tiled_direct")]
    assert not {"benchmarks", "reports", "course", "networks", "layers"} & {
        Path(name).parts[0] for name in found
    }
    assert {"run.py", "Makefile", "README.md", "milestones/m1/README.md", "docs/check.md", "LICENSE"} <= set(
        found
    )
    assert "docs/roofline.md" not in found
    assert "milestones/ladder.toml" not in found, "it says what limits each variant"
    assert "IMPL ?= m1\n" in (handout / "Makefile").read_text()
    assert told_by(handout, "git", "log", "--format=%s").stdout == "The handout\n"
    assert told_by(handout, "git", "status", "--porcelain").stdout == ""


def test_nothing_of_a_kernel_that_was_left_out_is_revealed(handout: Path) -> None:
    """It is in no file of any kind, neither as code nor as the answer of an exercise."""
    record = json.loads((handout / HANDOUT.name).read_text())
    public = "".join("".join(find(name).source.read_text().split()) for name in record["kept"][1:])
    everything = {
        name: "".join((handout / name).read_text(errors="replace").split())
        for name in files_of(handout)
        if not name.endswith((".h5", ".png"))
    }
    secret: set[str] = set()
    for name in record["left"]:
        variant = find(name)
        if variant.plan:
            statements = re.split(r"[;{}]", re.sub(r"//.*", "", variant.source.read_text()))
            longest = sorted(("".join(text.split()) for text in statements), key=len)[-3:]
            longest = [text for text in longest if not text.startswith("extern")]  # what tests call
            secret |= {text for text in longest if len(text) > 60 and text not in public}
        exercise = variant.folder / "exercise.toml"
        hints = re.findall(r'code = "(.*)"', exercise.read_text()) if exercise.is_file() else []
        secret |= {text for hint in hints if len(text := "".join(hint.split())) > 40 and text not in public}
    assert len(secret) > 60
    told = [(name, text) for name, content in everything.items() for text in secret if text in content]
    assert not told


def bodies(kernel: str) -> str:
    """The bodies of all GPU functions of a kernel file."""
    code, found = COMMENT.sub(" ", kernel), []
    for start in re.finditer(r"__(?:global|device)__[^;{]*\{", code):
        depth, end = 1, start.end()
        while depth and end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        found.append(code[start.end() : end])
    return " ".join(found)


def grams(text: str) -> set[int]:
    """Hashes of all sequences of twelve tokens."""
    words = re.findall(r"\w+|[^\w\s]", COMMENT.sub(" ", text))
    return {hash(run) for run in zip(*(words[start:] for start in range(12)), strict=False)}


def test_hardly_any_of_the_body_of_a_kernel_that_was_left_out_is_anywhere(handout: Path) -> None:
    """All files together contain at most a third of the short token sequences of each kernel."""
    record = json.loads((handout / HANDOUT.name).read_text())
    public = set[int]().union(*(grams(path.read_text()) for path in sources(record["kept"])))
    there: set[int] = set()
    for name in files_of(handout):
        text = (handout / name).read_text(errors="replace")
        if name.endswith((".svg", ".html")):
            text = html.unescape(re.sub(r"<[^>]+>", " ", text))
        if ";" in text and not name.endswith((".h5", ".png")):
            there |= grams(text)
    shares = {}
    for name in record["left"]:
        variant = find(name)
        secret = grams(bodies(variant.source.read_text())) - public if variant.plan else set()
        if len(secret) >= 30:
            shares[name] = len(secret & there) / len(secret)
    assert len(shares) > 40
    assert {name: share for name, share in shares.items() if share > 1 / 3} == {}
    fusion = find("m3/fusion").source.read_text()
    assert grams(bodies(fusion)) <= grams(fusion)


def test_its_history_holds_nothing_but_its_files(handout: Path) -> None:
    """Each object of the repository is its only commit, or one of its folders or files."""
    listed = told_by(
        handout, "git", "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"
    )
    objects = [line.split() for line in listed.stdout.splitlines()]
    tree = told_by(handout, "git", "ls-tree", "-r", "--format=%(objectname) %(path)", "HEAD").stdout
    blobs = dict(line.split(" ", 1)[::-1] for line in tree.splitlines())
    assert sorted(blobs) == files_of(handout)
    assert {name for kind, name in objects if kind == "blob"} == set(blobs.values())
    assert [kind for kind, _ in objects].count("commit") == 1
    assert told_by(handout, "git", "for-each-ref", "--format=%(refname)").stdout == "refs/heads/main\n"
    assert {kind for kind, _ in objects} == {"blob", "tree", "commit"}


def test_pages_lead_somewhere(handout: Path) -> None:
    found = files_of(handout)
    pages = {name: (handout / name).read_text() for name in found if name.endswith(".md")}
    assert len(pages) > 8
    assert not broken_links(pages, found)
    readme = pages["README.md"]
    assert "This copy is a handout" in readme
    assert not [text for text in ("m3/fusion", "run.py handout") if text in readme]
    assert "gemm/v3" not in pages["docs/interop.md"], "the short name of gemm/v3_registers"
    assert "run.py check --impl PATH" in readme


def test_it_runs(handout: Path) -> None:
    done = told_by(handout, sys.executable, "run.py", "check", "m1", "--shapes", "1,1,5,4,2,3,3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "m1/direct" in done.stdout
    done = told_by(handout, sys.executable, "run.py", "list")
    assert "m1/tiled_direct" in done.stdout
    assert "m2/unroll_gemm" not in done.stdout


@pytest.mark.exhaustive
def test_its_program_its_grader_and_some_of_its_tests_work(handout: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(handout, tmp_path / "handout")
    for words in (
        ["run.py", "--batch", "1", "--device", "emulator", "--check"],
        ["run.py", "profile", "--tool", "emulator", "--shapes", "1,1,5,4,2,3,3"],
        ["run.py", "grade", "milestones/m1/direct", "--rubric", "small", "--out", str(tmp_path / "graded")],
        # Part of it needs files that are absent
        ["-m", "pytest", "--sample=0", "-q", "tests/test_code_hash.py"],
    ):
        done = told_by(copy, sys.executable, *words)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--keep", "m9", "--out", "x"], "--keep m9: no variant has that name; expected one of attention, "),
        (
            ["--keep", "softmax", "--out", "x"],
            "the program of a handout needs a kernel for conv2d; add m1/direct",
        ),
        (["--keep", "m1", "--out", "."], "--out . already exists"),
        (["--keep", "m1", "--out", str(ROOT / "docs/handout")], "is inside the repository"),
    ],
)
def test_wrong_use(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["handout", *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_commands_say_what_a_handout_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / HANDOUT.name
    record.write_text('{"left": ["gemm/v99_left", "networks/lenet/left"]}')
    for module in ("variant.folders", "handout.parts"):
        monkeypatch.setattr(f"mini_dnn.{module}.HANDOUT", record)
    for name in ("gemm/v99_left", "gemm/v99", "lenet/left"):
        with pytest.raises(VariantError, match=f"'{name}': this copy is a handout, which leaves it out"):
            find(name)
    with pytest.raises(UsageError, match="is a handout itself"):
        divide(["m1"])


def test_networks_without_variants_run_in_numpy(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    for module in ("classify_by", "infer_variant"):
        monkeypatch.setattr(f"mini_dnn.cli.{module}.has_variants", lambda operation: False)
    monkeypatch.setattr("mini_dnn.cli.classify_by.open_device", lambda name: pytest.fail("it was opened"))
    assert main(["classify", str(ROOT / "docs/no_picture.png")]) == 1
    assert "the host" in capsys.readouterr().out
    assert main(["--network", "vit", "--batch", "1"]) == 0
    assert "variant   cpu: NumPy" in capsys.readouterr().out


def test_what_git_does_not_track_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.handout.parts.tracked", lambda: ["milestones/m1/direct/variant.py"])
    with pytest.raises(MiniDnnError, match=r"track milestones/m1/cpu/variant\.py, \S+/direct/kernel\.cu, "):
        divide(["m1"])


def test_a_handout_that_would_tell_is_not_written(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mini_dnn.handout.copy.leaks", lambda *_: {"docs/check.md"})
    with pytest.raises(MiniDnnError, match="would contain pieces of solutions"):
        write(parts, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_tests_are_skipped_for_what_a_handout_lacks_alone(handout: Path, tmp_path: Path) -> None:
    for text in (
        "error: no variant 'm3', which is 'layers/custom'",
        "find('m2')",
        "No such file or directory: '/x/benchmarks/results/h200.json'",
        "ModuleNotFoundError: No module named 'mini_dnn.quads'",
        "ImportError: cannot import name 'quads' from 'mini_dnn' (/x/mini_dnn/__init__.py)",
        "--network vit: see 'networks'",
    ):
        assert absent.LEFT_OUT in absent.why_absent(text, handout), text
    for text in ("assert 1 == 2", "find('m1')", "m1/direct differs", "test_check.py", "no variant 'zzz'"):
        assert not absent.why_absent(text, handout), text
    assert not absent.why_absent("mine/m2/unroll_gemm differs", handout), "it is the student's"
    copy = tmp_path / "course"  # a folder of this name is also left out
    shutil.copytree(ROOT / "layers/custom", copy / "layers/custom")
    shutil.copy(handout / HANDOUT.name, copy)
    assert not absent.why_absent("'m3' differs: layers/custom", copy), "the student has written it"
    assert not absent.why_absent(f"{copy}/mine/m2/unroll_gemm/kernel.cu:3: error", copy)
    assert absent.why_absent("m3/fusion differs", copy)
    assert absent.why_absent(f"{copy}/course/rubric.toml", copy)
    assert not absent.why_absent("find('m3/fusion')"), "in the repository itself"


def test_a_page_that_a_handout_needs_may_not_tell(parts: Parts, tmp_path: Path) -> None:
    files = tuple(name for name in parts.files if name != "README.md")
    told = replace(parts, files=files, absent=(*parts.absent, "README.md"))
    with pytest.raises(MiniDnnError, match=r"README\.md contains a piece of a solution"):
        write(told, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_no_page_names_in_code_what_is_absent(handout: Path) -> None:
    """Neither variants nor files nor folders. Assignments and capital letters say what is to be written."""
    record = json.loads((handout / HANDOUT.name).read_text())
    variant = word_of([*record["left"], *record["short"]])
    there = {str(path.relative_to(handout)) for path in handout.rglob("*")}
    lost = [(Path(name), *list(Path(name).parents)[:-1]) for name in record["absent"]]
    gone = {str(path) for paths in lost for path in paths} - there
    found = []
    for page in sorted(handout.rglob("*.md")):
        for code in re.finditer(r"```.*?```|`[^`]+`", page.read_text(), re.DOTALL):
            paths = [Path(name) for name in re.findall(r"(?<![\w./-])[\w.-]+/[\w./-]*", code[0])]
            paths = [path for path in paths if not any(part.isupper() for part in path.parts)]
            missing = [str(path) for path in paths if not gone.isdisjoint(map(str, (path, *path.parents)))]
            if missing or variant.search(code[0]):
                found.append(f"{page.relative_to(handout)}: {missing or code[0]}")
    assert [one for one in found if not one.startswith("assignments/")] == []
