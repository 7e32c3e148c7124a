"""In a handout, skip tests that fail because the handout leaves something out, and say why.

``run.py handout`` writes ``handout.json``, which says what is left out. A test that fails is skipped if its
traceback or its output names such a variant, file or module. In the repository itself nothing is absent, and
nothing is skipped.
"""

import json
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from mini_dnn.paths import HANDOUT, ROOT
from mini_dnn.variant import SHORT_NAMES
from mini_dnn.variant.folders import HOMES, MINE

LEFT_OUT = "this handout leaves out what the test needs"


@cache
def record(root: Path = ROOT) -> dict[str, Any]:
    """Return the content of ``handout.json``; empty in the repository."""
    file = root / HANDOUT.name
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


@cache
def absent(root: Path = ROOT) -> re.Pattern[str] | None:
    """Return a pattern for names that the handout leaves out and nobody has added since."""
    found = record(root)
    if not found:
        return None
    gone = [name for name in found["absent"] if not (root / name).exists()]
    places = [root / home for home in (*HOMES, ".")]
    left = [name for name in found["left"] if not any((at / name / "variant.py").is_file() for at in places)]
    short = [name for name in found["short"] if name not in SHORT_NAMES or SHORT_NAMES[name] in left]
    folders = {str(parent) for name in gone for parent in PurePosixPath(name).parents} - {"."}
    paths = [*gone, *(name for name in folders if not (root / name).exists())]
    modules = [PurePosixPath(name).with_suffix("") for name in gone if name.endswith(".py")]
    inside = [".".join(name.parts) for name in modules if name.parts[0] == "mini_dnn"]
    imported = "|".join(name.rpartition(".")[2] for name in inside) or "(?!)"
    headers = [PurePosixPath(name).name for name in gone if name.endswith(".cuh")]
    named = [*left, *headers, *inside, *(path for path in paths if "/" in path)]
    top = "|".join(re.escape(path) for path in paths if "/" not in path) or "(?!)"
    shorts = "|".join(re.escape(name) for name in short) or "(?!)"
    alone = "|".join(re.escape(name.name) for name in modules if name.parts[0] == "benchmarks") or "(?!)"
    groups = "|".join(sorted({name.partition("/")[0] for name in (*left, *short)}))
    any_of = "|".join(re.escape(name) for name in sorted(named, key=len, reverse=True))
    return re.compile(
        rf"(?<![\w-])(?<!{MINE}/)(?:{any_of})(?!\w)|['\"](?:{shorts})['\"]|--impl[ =](?:{shorts})\b"
        rf"|cannot import name '(?:{imported})' from 'mini_dnn"
        rf"|No module named '(?:{alone})'|\bimport (?:{alone})\b"
        rf"|no variant '(?:{groups})\b|has no variants yet"
        rf"|['\"/](?:{top})['\"/]"
    )


def why_absent(text: str, root: Path = ROOT) -> str:
    """Explain why a test that failed with this text cannot pass here; empty if it should pass."""
    pattern = absent(root)
    inside = text.replace(str(root), "")  # the copy itself may be in a folder such as course/
    match = pattern.search(inside) if pattern else None
    return f"{LEFT_OUT}: {match[0]}" if match else ""
