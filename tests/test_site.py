"""The documentation as a site: it builds without warnings, needs no other server, and can be searched."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from browser import Browser

from mini_dnn.paths import ROOT

CONFIG = ROOT / "docs/site/mkdocs.yml"
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href|srcset)=[\"']?(https?:)?//", re.IGNORECASE
)
NEEDED = ("mkdocs", "material", "mkdocstrings", "latex2mathml")
SEARCH = """new Promise(done => {
  const input = document.querySelector(".md-search__input");
  input.focus();
  input.value = "bank conflict";
  input.dispatchEvent(new KeyboardEvent("keyup"));
  const look = () => {
    const links = [...document.querySelectorAll(".md-search-result__link")];
    const found = links.map(link => link.getAttribute("href"));
    found.length ? done(found) : setTimeout(look, 50);
  };
  look();
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--config-file", CONFIG, "--site-dir", folder]
    done = subprocess.run(
        words, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.exhaustive
def test_the_site_is_whole_and_needs_nothing_else(site: Path, request: pytest.FixtureRequest) -> None:
    for name in ("index", "docs/roofline", "milestones/m3/index", "ladders/gemm/index", "docs/glossary"):
        assert (site / f"{name}.html").is_file()
    assert "max_shared_bytes" in (site / "api/mini_dnn.variant.variant.html").read_text()
    assert "open_device" in (site / "api/mini_dnn.html").read_text()
    assert "mini_dnn.softmax" in (site / "api/mini_dnn.html").read_text()
    assert "conv_fused" in (site / "milestones/m3/fusion/kernel.cu.html").read_text()
    for page in site.rglob("*.html"):
        assert not LOADED.search(page.read_text()), page
    try_in_a_browser(site / "docs/glossary.html", request.getfixturevalue("browser"))  # skips without one


def try_in_a_browser(page: Path, browser: Browser) -> None:
    """Formulas are drawn, the search works, and the colours follow the system, for files on a disk."""
    glossary = browser.open(page, width=400, dark=True)
    assert glossary.overflow == 0
    assert glossary.run("document.querySelectorAll('math').length") > 5
    assert glossary.run("document.querySelector('math mfrac').getBoundingClientRect().height") > 10
    found = glossary.run(SEARCH)
    assert any("glossary.html" in link for link in found)
    assert glossary.messages == []
    scheme = "document.body.getAttribute('data-md-color-scheme')"
    assert glossary.run(scheme) == "slate"
    glossary.close()
    light = browser.open(page, dark=False)  # a reader whose system was dark before
    assert light.run(scheme) == "default"
    light.close()
