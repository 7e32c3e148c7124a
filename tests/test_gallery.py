"""The verdicts in the README are up to date."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from doc_scripts import script, texts

from mini_dnn.paths import ROOT


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    return script("gallery")


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
