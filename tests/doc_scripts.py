"""The scripts that write files of the documentation."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from mini_dnn.paths import ROOT


def script(name: str) -> ModuleType:
    """Import a script of ``docs``, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(svg: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg.read_text())
