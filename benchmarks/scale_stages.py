"""Test grading in two stages on a machine with a GPU: right, slow, wrong and dishonest submissions.

``python benchmarks/scale_stages.py --out FILE.json`` runs ``run.py grade`` with a profile that has a table
``[gpu]``. Several processes run all checks in the emulator, and then the passing submissions run on the GPU,
one at a time. The benchmark fails unless each submission is treated as expected. Then the same command runs
again, and must grade nothing. ``--device emulator`` only runs the first stage, on a machine without a GPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command_line import add_out, parser_of, write

from mini_dnn.cli import status_of
from mini_dnn.errors import MiniDnnError
from mini_dnn.measuring.machine import commit, cpu_name
from mini_dnn.paths import ROOT

CHEATS = ROOT / "tests/cheats"
RUBRIC = """
name = "stages"
precision = "fp16"
single = "layers/custom"
ranking = "layers/custom"

[limits]
seconds = 120

[correct]
shapes = [[2, 2, 9, 21, 3, 5, 5], [2, 4, 40, 40, 16, 7, 7]]
seed = 1

[hidden]
shapes = [[3, 3, 12, 10, 5, 4, 4]]
seeds = [4242]

[checked]
shapes = [[2, 3, 9, 11, 5, 3, 3]]

[performance]
batch = 2000
reference = "m2/unroll_gemm"
full = 0.25
none = 1.0

[[variant]]
name = "layers/custom"
points = { correct = 4, hidden = 3, checked = 2, performance = 5 }
"""
PROFILE = "workers = {workers}\n\n[gpu]\nworkers = 1\n"
FOLDERS = {  # the source of each submission, and the change of its kernel
    "right": ("layers/custom", ()),
    "slow": ("milestones/m1/direct", ()),
    "wrong": ("milestones/m1/direct", ("acc +=", "acc -=")),
    "beyond": ("milestones/m1/direct", ("if (pixel >= P * Q) return;", "")),
}
DISHONEST = ("skips_when_timed", "half_when_timed")
TIMED = {"right", "slow", *DISHONEST}  # submissions that must reach the second stage


def submissions(folder: Path) -> list[str]:
    """Create the folders of all submissions."""
    for name, (source, change) in FOLDERS.items():
        shutil.copytree(ROOT / source, folder / name, ignore=shutil.ignore_patterns("*.md", "__pycache__"))
        if change:
            text = (folder / name / "kernel.cu").read_text()
            assert change[0] in text, name
            (folder / name / "kernel.cu").write_text(text.replace(*change))
    for name in DISHONEST:
        shutil.copytree(CHEATS / "_base", folder / name)
        shutil.copytree(CHEATS / name, folder / name, dirs_exist_ok=True)
    return [str(folder / name) for name in (*FOLDERS, *DISHONEST)]


def grade(words: list[str]) -> tuple[str, float]:
    """Run the command. Return its output and its seconds.

    Raises
    ------
    MiniDnnError
        It failed, and has printed why.
    """
    since = time.monotonic()
    command = [sys.executable, str(ROOT / "run.py"), "grade", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr, flush=True)
    if done.returncode:
        raise MiniDnnError(f"run.py grade failed with the exit status {done.returncode}; see above")
    return done.stdout, time.monotonic() - since


def records(out: Path) -> dict[str, Any]:
    """Read the results of each submission."""
    found = {}
    for file in sorted((out / "grades").glob("*.json")):
        value = json.loads(file.read_text())["value"]
        found[file.stem] = {
            "stages": [stage for stage in ("cpu", "gpu") if (out / "stages" / stage / file.name).exists()],
            "points": sum(check["points"] for check in value["checks"]),
            "refused": value["refused"],
            "op_ms": value["op_ms"],
            "device": value["device"],
            "checks": {check["name"].rpartition(": ")[2]: check["status"] for check in value["checks"]},
            "performance": [c["staff"] for c in value["checks"] if c["name"].endswith(": performance")],
        }
    return found


def faults(found: dict[str, Any]) -> list[str]:
    """The differences from the expected results of two stages."""
    seconds = {name for name, one in found.items() if "gpu" in one["stages"]}
    return [
        *(f"{name} should have a second stage" for name in TIMED - seconds),
        *(f"{name} should have no second stage" for name in seconds - TIMED),
        *(f"{name} has points" for name in (*DISHONEST, "wrong") if found[name]["points"]),
        *(f"{name} is not refused" for name in DISHONEST if not found[name]["refused"]),
        *(f"{name} has a time" for name in set(found) - {"right", "slow"} if found[name]["op_ms"]),
        *(f"{name} has no time" for name in ("right", "slow") if not found[name]["op_ms"]),
        *(f"{n} has no clocks" for n in ("right", "slow") if "mhz" not in str(found[n]["performance"])),
        *(["slow is not slower than right"] if _op_ms(found, "slow") <= _op_ms(found, "right") else []),
    ]


def _op_ms(found: dict[str, Any], name: str) -> float:
    return float(found[name]["op_ms"] or 0)


def main(words: Sequence[str] | None = None) -> int:
    """Grade twice, compare with the expectations, and write a file."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=("cuda", "emulator"), default="cuda", help="default: %(default)s")
    parser.add_argument("--weak-isolation", action="store_true", help="see run.py grade")
    add_out(parser, required=True)
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rubric.toml").write_text(RUBRIC)
        (folder / "profile.toml").write_text(PROFILE.format(workers=min(6, os.cpu_count() or 1)))
        command = submissions(folder / "submissions")
        command += ["--rubric", str(folder / "rubric.toml"), "--profile", str(folder / "profile.toml")]
        command += ["--device", args.device, "--out", str(folder / "out")]
        command += ["--weak-isolation"] if args.weak_isolation else []
        _, first_s = grade(command)
        again, again_s = grade(command)
        found = records(folder / "out")
    wrong = [] if args.device == "emulator" else faults(found)
    wrong += [] if again.count("graded before") == len(found) else ["the second command graded again"]
    result = {**commit(), "cpu": cpu_name(), "weak_isolation": args.weak_isolation, "faults": wrong}
    result |= {"seconds": [round(first_s, 1), round(again_s, 1)], "submissions": found}
    write(args.out, result)
    print("\n".join(wrong) or "as expected")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(status_of(main))
