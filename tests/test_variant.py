"""Variants are found by their folders, and messages about broken variants say what is wrong."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from convolutions import planned

from mini_dnn.errors import VariantError
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.paths import ROOT
from mini_dnn.variant import SHORT_NAMES, Variant, ceil_div, find, folders, names

MINIMAL = """
from mini_dnn.variant import Launch, Variant

def plan(s):
    return [Launch("conv", (s.N,), (32,), ("x", "w", "y"))]

VARIANT = Variant(op="conv2d", plan=plan, idea="mine")
"""


def write(folder: Path, text: str = MINIMAL, kernel: str | None = "// nothing\n") -> Path:
    folder.mkdir()
    (folder / "variant.py").write_text(text)
    if kernel is not None:
        (folder / "kernel.cu").write_text(kernel)
    return folder


def test_ceil_div() -> None:
    assert [ceil_div(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


@pytest.mark.parametrize("name", names())
def test_every_shipped_variant_loads_and_its_parent_exists(name: str) -> None:
    variant = find(name)
    assert variant.name == name
    assert variant.idea
    if variant.parent is not None:
        assert find(variant.parent).name == variant.parent


@pytest.mark.parametrize("short", SHORT_NAMES)
def test_short_names(short: str) -> None:
    assert find(short).name == SHORT_NAMES[short]


@pytest.mark.parametrize("file", ["", "variant.py", "kernel.cu"])
def test_a_folder_outside_the_repository(tmp_path: Path, file: str) -> None:
    folder = write(tmp_path / "my_kernel")
    variant = find(folder / file)
    assert variant.source == folder / "kernel.cu"
    assert variant.name == str(folder)
    assert variant.plan is not None
    assert variant.plan(ConvShape(2, 1, 3, 3, 1, 1, 1))[0].grid == (2,)


def test_a_byte_order_mark_is_no_code(tmp_path: Path) -> None:
    """Editors on Windows write one, and Python accepts it."""
    folder = write(tmp_path / "mine")
    (folder / "variant.py").write_text(MINIMAL, encoding="utf-8-sig", newline="\r\n")
    assert find(folder).idea == "mine"


def test_an_edit_is_seen_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine")
    assert find(folder).idea == "mine"
    (folder / "variant.py").write_text(MINIMAL.replace('"mine"', '"your"'))  # same length, same second
    assert find(folder).idea == "your"
    assert not list(folder.glob("__pycache__"))


def test_a_dataclass_in_a_variant(tmp_path: Path) -> None:
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text = head + "@dataclass\nclass T:\n    a: int\n" + MINIMAL
    assert find(write(tmp_path / "mine", text)).idea == "mine"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div", "ConvShape Launch ceil_div"),
        ("from mini_dnn.variant import CopyToSymbol, Gemm, LenetBatch, Step, Sweep", "Gemm LenetBatch Sweep"),
        ("from mini_dnn.fused import ConvPoolShape", "ConvPoolShape"),
        ("from mini_dnn.numpy_conv import conv2d_forward", "conv2d_forward"),
        ("from mini_dnn.plan import CopyIn, CopyOut, Images, Launch", "CopyIn CopyOut Images Launch"),
        ("from mini_dnn.shapes import ConvShape, LenetBatch", "ConvShape LenetBatch"),
        ("import mini_dnn.shapes as s; ConvShape = s.ConvShape", "ConvShape"),
        ("from mini_dnn import plan as p; Launch = p.Launch", "Launch"),
    ],
)
def test_what_older_files_import(tmp_path: Path, line: str, names: str) -> None:
    """The test uses a new process, into which no other file has imported anything."""
    text = f"{line}\n{MINIMAL}IMPORTED = [{names.replace(' ', ', ')}]\n"
    folder = write(tmp_path / "mine", text)
    code = (
        "import sys; from mini_dnn.nn.numpy_conv import conv2d_forward; from mini_dnn.variant import *\n"
        f"found = find({str(folder)!r})\n"
        f"module = sys.modules['mini_dnn_variant {folder}']\n"
        f"assert module.IMPORTED == [{names.replace(' ', ', ')}]"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_misspelled_name_suggests() -> None:
    with pytest.raises(VariantError, match=r"no variant 'm2/unrol_gemm' \(did you mean 'm2/unroll_gemm'\?\)"):
        find("m2/unrol_gemm")


@pytest.mark.whole
def test_unknown_name_lists_all() -> None:
    with pytest.raises(
        VariantError, match=r"no variant 'zzz'; expected one of cpu, m1, m2, m3, .* and \d+ more\."
    ):
        find("zzz")


def test_a_copy_without_the_final_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A course may distribute such a copy."""
    (tmp_path / "milestones/m1").mkdir(parents=True)
    write(tmp_path / "milestones/m1/direct", MINIMAL)
    monkeypatch.setattr("mini_dnn.variant.folders.ROOT", tmp_path)
    assert names() == ["m1/direct"]
    with pytest.raises(
        VariantError, match=r"no variant 'm3', which is 'layers/custom'; expected one of m1, m1/"
    ):
        find("m3")
    (tmp_path / "networks/lenet").mkdir(parents=True)
    write(tmp_path / "networks/lenet/whole_v1", MINIMAL)
    for short in ("lenet/whole_v1", "lenet/whole"):
        assert find(short).name == "networks/lenet/whole_v1"


def test_an_operation_without_variants_suggests_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.variant.folders.PLACES", ())
    with pytest.raises(VariantError, match=r"softmax is an operation; name one of its variants\. 'run"):
        find("softmax")


def test_folder_without_variant(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=r"holds no variant.py"):
        find(tmp_path)
    unreadable = write(tmp_path / "name\udcff", MINIMAL)
    with pytest.raises(VariantError, match=r"name\?: the name of this folder is not text in utf-8"):
        find(unreadable)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def plan(:\n", r"cannot be loaded: line 1: .*def plan\(:"),
        ("x = 1\ny = x / 0\n", r"line 2 \(y = x / 0\): ZeroDivisionError"),
        ("import nonsense_module\n", r"line 1 .*ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", r"line 2 .*SystemExit: 3"),
        ("x = 1\n", r"defines no VARIANT"),
        (MINIMAL.replace('idea="mine"', 'idea="", min_arch="80"'), r"min_arch is '80'; expected a number"),
        (MINIMAL.replace("plan=plan, ", ""), r"needs either plan= \(kernels\) or host="),
        (MINIMAL.replace('idea="mine"', 'idea="", precision="fp8"'), r"precision 'fp8' is not one of"),
        (
            MINIMAL.replace('idea="mine"', 'idea="", compute_type="3xfp8"'),
            r"compute_type '3xfp8' is not one of",
        ),
        (MINIMAL.replace('idea="mine"', 'idae="mine"'), r"unexpected keyword argument 'idae'"),
    ],
)
def test_broken_variants_say_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(VariantError, match=message):
        find(write(tmp_path / "broken", text))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 // (s.N - s.N)", r"plan of .*variant\.py fails: line 5 \(return 1.*ZeroDivisionError"),
        ("pass", r"plan returns None; it must return a list of steps"),
        ("return Launch('conv', (s.N,), (32,), ())", r"plan returns Launch\(.*must return a list of steps"),
        ("return ['conv']", r"plan returns 'conv', which is not a step"),
        ("return [Launch('conv', (s.N / 2,), (32,), ())]", r"grid \(1\.0,\); it must be a tuple of integers"),
    ],
)
def test_broken_plans_say_where(tmp_path: Path, body: str, message: str) -> None:
    text = MINIMAL.replace('return [Launch("conv", (s.N,), (32,), ("x", "w", "y"))]', body)
    variant = find(write(tmp_path / "broken", text))
    with pytest.raises(VariantError, match=message):
        planned(variant, ConvShape(2, 1, 3, 3, 1, 1, 1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("scratch=lambda s: ['col']", r"scratch returned \['col'\]; expected names with shapes"),
        ("scratch=lambda s: {'col': (s.N / 2,)}", r"shapes of integers"),
        ("scratch=lambda s: {'col': 3}", r"shapes of integers"),
        ("defines=lambda s: ['TILE']", r"defines returned \['TILE'\]; expected names with integers"),
        ("defines={'TYPE': 'half'}", r"expected names with integers"),
    ],
)
def test_broken_buffers_and_definitions_are_named(tmp_path: Path, given: str, message: str) -> None:
    variant = find(write(tmp_path / "broken", MINIMAL.replace('idea="mine"', f'idea="", {given}')))
    shape = ConvShape(2, 1, 3, 3, 1, 1, 1)
    with pytest.raises(VariantError, match=message):
        planned(variant, shape)


def test_an_explicit_path_is_never_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m1").mkdir()
    folder = write(tmp_path / "m1" / "direct")
    monkeypatch.chdir(tmp_path)
    assert find("./m1/direct").folder == folder
    assert find("m1/direct").folder != folder


def test_a_home_that_is_not_known() -> None:
    with pytest.raises(VariantError, match=r"no variant '~no\.such\.user/m1'"):
        find("~no.such.user/m1")


def test_a_path_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        VariantError, match=r"no variant 'a{300}': File name too long; expected a variant's name"
    ):
        find("a" * 300)

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_file", refuse)  # root may search every folder
    with pytest.raises(VariantError, match=r"Permission denied; .* a folder that you may read"):
        find(tmp_path / "mine")


def test_an_installation_without_variants_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `pip install .` without -e."""
    for name in ("names", "mine"):
        monkeypatch.setattr(folders, name, tuple)
    monkeypatch.setattr(folders, "HOMES", ())
    with pytest.raises(VariantError, match=r"there are none here\. .* 'pip install -e \.' installs"):
        folders.folder_of("softmax/v1_warp")


def test_plan_without_kernel_file(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=r"there is no .*kernel\.cu"):
        find(write(tmp_path / "broken", kernel=None))


def test_defines_may_depend_on_the_shape() -> None:
    shape = ConvShape(1, 3, 8, 8, 2, 3, 3)
    fixed = Variant(op="conv2d", idea="", defines={"TILE": 4})
    by_shape = Variant(op="conv2d", idea="", defines=lambda s: {"CHANNELS": s.C})
    assert fixed.defines_for(shape) == {"TILE": 4}
    assert by_shape.defines_for(shape) == {"CHANNELS": 3}
