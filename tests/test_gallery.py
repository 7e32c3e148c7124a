"""The verdicts in the README are up to date."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from mini_dnn.paths import ROOT

NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(svg: Path) -> list[str]:
    return [
        text
        for node in ElementTree.parse(svg).iter(f"{NAMESPACE}text")
        if (text := (node.text or "").strip())
    ]


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_show_what_check_says_now(gallery: ModuleType, tmp_path: Path) -> None:
    gallery.main(tmp_path)
    shown = ROOT / "docs" / "check"
    assert {path.name for path in shown.iterdir()} == {path.name for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        drawn = texts(path)
        assert "cure" in drawn
        assert not any("expect:" in text for text in drawn)
        assert texts(shown / path.name) == drawn, f"{path.name} is behind: python docs/gallery.py"


def test_the_readme_shows_them_all(gallery: ModuleType) -> None:
    pictures = re.findall(r"!\[.+?\]\(docs/check/(\w+)\.svg\)", (ROOT / "README.md").read_text())
    assert pictures == list(gallery.KERNELS)
    assert len(pictures) == 5
