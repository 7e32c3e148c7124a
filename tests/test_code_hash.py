"""The hash of a variant's code ignores comments and white space, and nothing else."""

import ast
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mini_dnn.device import sources
from mini_dnn.device.code_hash import AS_BEFORE, code_hash, python_code
from mini_dnn.device.sources import python_files, source_hash
from mini_dnn.paths import ROOT
from mini_dnn.variant import find, names

RESULTS = ROOT / "benchmarks" / "results"

KERNEL = """// idea
#define TILE (16)  // side
#include "part.h"
extern "C" __global__ void k(float* y) {
  y[0] = 1'000'000 + '"' - sizeof("// no comment") + TILE;  /* a
  comment */
  y[1] = y[0] / 2;
}
"""
VARIANT = '''"""Lesson."""
TILE = 16  # side


def plan(s):
    """One launch."""
    return [Launch("k", (s.N, TILE), (0,), ("y",))]


VARIANT = Variant(op="conv2d", plan=plan, idea="one thing")
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('"""Lesson."""', '"""Another."""', True),
        ("  # side", "", True),
        ('    """One launch."""\n', "", True),
        ("(s.N, TILE), (0,)", "(\n        s.N,\n        TILE,\n    ), (0,)", True),
        ("one thing", "two things", True),
        ("TILE = 16", "TILE = 17", False),
        ("(s.N, TILE)", "(TILE, s.N)", False),
        ("(0,)", "(False,)", False),
        ("op=", "refuses=", False),
    ],
)
def test_variants(old: str, new: str, same: bool) -> None:
    assert old in VARIANT
    assert (python_code(VARIANT) == python_code(VARIANT.replace(old, new))) == same


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("kernel.cu", "// idea", "// another", True),
        ("kernel.cu", "16", "17", False),
        ("part.h", "// part", "", True),
        ("part.h", "float", "int", False),
        ("variant.py", "# side", "# edge", True),
        ("variant.py", "16", "17", False),
    ],
)
def test_every_file_counts(tmp_path: Path, file: str, old: str, new: str, same: bool) -> None:
    texts = {"kernel.cu": KERNEL, "part.h": "float part; // part\n", "variant.py": VARIANT}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    before = code_hash(tmp_path / "kernel.cu")
    assert old in texts[file]
    (tmp_path / file).write_text(texts[file].replace(old, new))
    assert (code_hash(tmp_path / "kernel.cu") == before) == same


@pytest.mark.parametrize(
    ("part", "kernel", "same"),
    [
        ("", None, True),
        ("// The output.\n", None, True),
        ("#pragma once\n", None, False),  # a header without the others
        ("", '#define TILE (16)\n{rest}#include "half.cuh"\n', False),  # another order
    ],
)
def test_a_part_counts_in_its_place(tmp_path: Path, part: str, kernel: str | None, same: bool) -> None:
    (tmp_path / "part.h").write_text("#pragma once\nfloat part;\n")
    (tmp_path / "variant.py").write_text(VARIANT)
    (tmp_path / "kernel.cu").write_text(KERNEL)
    before = code_hash(tmp_path / "kernel.cu")
    head, rest = KERNEL.split('#include "part.h"\n')
    (tmp_path / "half.cuh").write_text(f'{part}#include "part.h"')
    text = f'{head}#include "half.cuh"\n{rest}' if kernel is None else kernel.format(rest=rest)
    (tmp_path / "kernel.cu").write_text(text)
    assert (code_hash(tmp_path / "kernel.cu") == before) == same


def test_parts_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "variant.py").write_text(VARIANT)
    (tmp_path / "kernel.cu").write_text('#include "one.cuh"\n')
    (tmp_path / "one.cuh").write_text('#include "two.cuh"\nint one;\n')
    (tmp_path / "two.cuh").write_text('#include "one.cuh"\nint two;\n')
    assert code_hash(tmp_path / "kernel.cu")


def hashed(folder: Path, head: str) -> str:
    """The hash of a variant whose description begins with ``head``."""
    (folder / "kernel.cu").write_text(KERNEL)
    (folder / "variant.py").write_text(f"{head}\n{VARIANT}")
    return code_hash(folder / "kernel.cu")


@pytest.mark.parametrize(
    "line", ["from mini_dnn.quads import SIDE", "from mini_dnn import quads", "import mini_dnn.quads as q"]
)
@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("quads.py", "SIDE = 16", "SIDE = 17", False),
        ("quads.py", "# side", "# edge", True),
        ("quads.py", "mini_dnn.variant", "mini_dnn.others", True),  # a definition was moved
        # The types of problems and plans; a module that nobody imports
        ("variant.py", "pass", "raise", True),
        ("other.py", "pass", "raise", True),
    ],
)
def test_host_halves_that_a_variant_imports_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, file: str, old: str, new: str, same: bool
) -> None:
    package = tmp_path / "mini_dnn"
    package.mkdir()
    monkeypatch.setattr("mini_dnn.device.sources.PACKAGE", package)
    halves = "from mini_dnn.variant import Variant\nSIDE = 16  # side\n"
    texts = {"quads.py": halves, "variant.py": "pass\n", "other.py": "pass\n"}
    for name, text in texts.items():
        (package / name).write_text(text)
    before = hashed(tmp_path, line)
    assert old in texts[file]
    (package / file).write_text(texts[file].replace(old, new))
    assert (code_hash(tmp_path / "kernel.cu") == before) == same


def test_host_halves_of_host_halves_count() -> None:
    files = python_files(find("networks/resnet18/v6").source.with_name("variant.py"))
    halves = {"variant.py", "implicit.py", "residual.py", "implicit_rows.py", "elements.py"}
    assert {file.name for file in files} == halves
    assert len(files) == len(halves)


def test_a_moved_import_is_no_change(tmp_path: Path) -> None:
    before = hashed(tmp_path, "from mini_dnn.variant import Launch, Variant, ConvShape")
    moved = "import mini_dnn.errors\nfrom mini_dnn.shapes import ConvShape\nfrom mini_dnn.plan import Launch"
    assert hashed(tmp_path, moved) == before
    assert hashed(tmp_path, "from mini_dnn.variant import CopyIn as Launch") != before
    assert hashed(tmp_path, "from numpy import prod") != before


def test_the_tiling_of_the_final_kernel_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = {name: find(name).source for name in ("layers/custom", "m3/fp32_split", "layers/fused", "m1")}
    before = {name: code_hash(source) for name, source in kernels.items()}
    for file in (ROOT / "mini_dnn").glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text() + "\nmore = 1\n" * (file.name != "quads.py"))
    monkeypatch.setattr("mini_dnn.device.sources.PACKAGE", tmp_path)
    assert {name: code_hash(source) for name, source in kernels.items()} == before
    quads = tmp_path / "quads.py"
    quads.write_text(quads.read_text().replace("MAX_ROWS = 10", "MAX_ROWS = 11"))
    changed = {name for name, source in kernels.items() if code_hash(source) != before[name]}
    assert changed == {"layers/custom", "m3/fp32_split", "layers/fused"}


def test_comments_in_any_encoding(tmp_path: Path) -> None:
    (tmp_path / "variant.py").write_text(VARIANT)
    hashes = set()
    for comment in (b"", b"// \xb5s\r\n", "// µs\n".encode()):
        (tmp_path / "kernel.cu").write_bytes(comment + b"int a;\r\n")
        hashes.add(code_hash(tmp_path / "kernel.cu"))
    assert len(hashes) == 1


@pytest.mark.whole
def test_code_that_keeps_its_hash_is_present() -> None:
    """After another change, its entry is of no use and has to go."""
    kernels = [variant for variant in map(find, names()) if not variant.host]
    assert set(AS_BEFORE.values()) <= {code_hash(kernel.source) for kernel in kernels}


@pytest.mark.whole
def test_kernels_of_the_repository_differ() -> None:
    hashes = [code_hash(variant.source) for variant in map(find, names()) if variant.host is None]
    assert len(set(hashes)) == len(hashes) > 10


def tree_of(commit: str, folder: Path) -> Path:
    """The variants' files at a commit."""
    git = ["git", "-C", str(ROOT)]
    try:
        listed = subprocess.run([*git, "ls-tree", "--name-only", commit], capture_output=True, check=True)
        there = set(listed.stdout.decode().split())
        rooms = {"milestones", "layers", "ladders", "networks", "mini_dnn"} & there
        command = [*git, "archive", commit, *sorted(rooms)]
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this copy has no commit {commit}: {error}")
    # Python has this parameter from 3.11.4 on.
    kept: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, **kept)
    return folder


def former_rule(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there were operations, imports counted, and all modules that a variant imported except these."""
    framework = {f"mini_dnn.{name}" for name in ("fused", "plan", "shapes", "variant")}

    def python_files(description: Path) -> list[Path]:
        files = [description]
        for file in files:  # the list grows during the loop
            for name in sources._imported(file.read_text(encoding="utf-8")):
                path = package.joinpath(*name.split(".")[1:]).with_suffix(".py")
                if name.startswith("mini_dnn.") and name not in framework and path.is_file():
                    files += [path] if path not in files else []
        return files

    def is_text(node: Any) -> bool:
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Constant)
        return isinstance(node, ast.keyword) and node.arg == "idea"

    monkeypatch.setattr("mini_dnn.device.code_hash.python_files", python_files)
    monkeypatch.setattr("mini_dnn.device.code_hash._is_text", is_text)
    monkeypatch.setattr(
        "mini_dnn.device.code_hash.python_code", python_code.__wrapped__
    )  # not from its cache


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_stored_hashes_are_those_of_the_commit(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads(file.read_text())
    kinds = ("rows", "latency", "growth", "throughput")
    named = [
        row | {"variant": row.get("variant", row.get("program"))} for k in kinds for row in record.get(k, [])
    ]
    rows = [row for row in named if row.get("kind", "ours") == "ours" and row["variant"]]
    if not isinstance(record["schema"], int):  # of ``bench``
        rows = [row for row in rows if row.get("code_hash")]
    if not rows:
        pytest.skip("no hash of ours")
    tree = tree_of(record["commit"], tmp_path)
    monkeypatch.setattr("mini_dnn.device.sources.PACKAGE", tree / "mini_dnn")  # as it was then
    monkeypatch.setattr("mini_dnn.device.sources.INCLUDE", tree / "mini_dnn" / "include")
    if not (tree / "mini_dnn" / "ops" / "operation.py").is_file():
        former_rule(tree / "mini_dnn", monkeypatch)
    for variant, of_source, of_code in {(r["variant"], r.get("source_hash"), r["code_hash"]) for r in rows}:
        if isinstance(record["schema"], int) and of_source is None:  # variants on the host
            assert of_code is None
            continue
        folders = [tree / home / variant for home in ("milestones", "ladders", "")]
        source = next(folder for folder in folders if folder.is_dir()) / "kernel.cu"
        if isinstance(record["schema"], int):  # all others depend only on the code
            assert of_source == source_hash(source), variant
        assert of_code == code_hash(source), variant
