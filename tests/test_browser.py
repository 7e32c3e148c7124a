"""The browser for tests of pages notices errors of a page."""

from pathlib import Path

from browser import Browser

PAGE = """<!doctype html><title>page</title>
<style>
  body { margin: 0; background: #fff; } p { width: 600px; }
  @media (prefers-color-scheme: dark) { body { background: #000; } }
</style>
<p id="text">before</p><button onclick="text.textContent = 'after'">change</button>
<script>console.error("said"); setTimeout(() => missing(), 0);</script>
"""


def test_a_page_is_opened_used_and_seen(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGE)
    page = browser.open(file, width=400, dark=True)
    assert page.overflow == 200
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(0, 0, 0)"
    page.click("button")
    assert page.run("text.textContent") == "after"
    assert page.run("new Promise(done => setTimeout(() => done(1 + 1), 20))") == 2
    said, thrown = page.messages
    assert said == "error: said"
    assert thrown.startswith("exception: ReferenceError")
    page.run("text.textContent = 'by key'; document.querySelector('button').focus()")
    page.press("Enter")
    assert page.run("text.textContent") == "after"
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    page.close()
