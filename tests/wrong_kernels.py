"""The kernels in `wrong/`: mistakes that checked mode has to find, and correct kernels like them."""

import re
from collections.abc import Sequence
from pathlib import Path

from check_plans import PLANS, TILE, scratch

from mini_dnn.checking.check import check
from mini_dnn.checking.results import Report
from mini_dnn.checking.schedules import SCHEDULES
from mini_dnn.device.emulator.checked import STEP_LIMIT
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant

FOLDER = Path(__file__).with_name("wrong")
NAMES = sorted(file.stem for file in FOLDER.glob("*"))
SHAPE = ConvShape(2, 3, 12, 21, 9, 3, 5)
LIMIT = STEP_LIMIT // 50  # blocks of kernels that end stay far below this at such shapes, too


def source_of(name: str) -> str:
    """The text of a kernel: that of NAME.cu, or that of another one with the changes in NAME.diff.

    The first lines of a NAME.diff are the kernel's own, up to the name of the other one. In the rest, ``@@``
    separates changes. The lines that a change finds must be in the other kernel exactly once.
    """
    file = FOLDER / f"{name}.cu"
    if file.exists():
        return file.read_text()
    head, origin, changes = re.split(r"// from: (\w+)\n", file.with_suffix(".diff").read_text())
    text = re.sub(r"\A(//.*\n)+", "\n", source_of(origin))
    for change in filter(None, changes.split("@@\n")):
        lines = change.splitlines(keepends=True)
        old, new = ("\n" + "".join(line[1:] for line in lines if line[0] != other) for other in "+-")
        assert text.count(old) == 1, f"{name}.diff does not fit {origin}: {old}"
        text = text.replace(old, new)
    return head + text[1:]


def marked(source: str, what: str) -> list[str]:
    """The words of the comments ``// what: word`` that begin lines of a kernel."""
    return re.findall(rf"^// {what}: ([\w-]+)$", source, re.MULTILINE)


def run_wrong(source: str, folder: Path, schedules: Sequence[str] = SCHEDULES) -> Report:
    """Check a kernel of the corpus with the plan that it names."""
    (folder / "kernel.cu").write_text(source)
    (plan,) = marked(source, "plan")
    variant = Variant(
        "conv2d",
        "",
        PLANS[plan],
        scratch=scratch if plan in ("split", "tensor_store") else lambda s: {},
        defines={"TILE": TILE},
        precision="fp16" if plan in ("wmma", "wgmma") else "fp32",
        min_arch=90 if plan.startswith(("tensor", "cluster")) else 75,
        folder=folder,
        name="wrong",
    )
    shape = ConvShape(2, 1, 12, 21, 9, 3, 5) if plan == "constant" else SHAPE
    return check(variant, [shape], schedules=schedules, limit=LIMIT)


def expected(source: str) -> list[tuple[str, int, str]]:
    """The kind, line and code of each finding that a kernel of the corpus marks; line 0 if none."""
    marks = []
    for number, line in enumerate(source.splitlines(), 1):
        if match := re.search(r"// expect: ([\w-]+)$", line):
            marks.append((match[1], 0, "") if line.startswith("//") else (match[1], number, line.strip()))
    assert marks, "it expects nothing"
    return marks
