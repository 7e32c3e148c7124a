"""Collect the repository's pages for the site, and adapt their links.

A page keeps its path, so that links between pages are the same as in the repository. Files that pages link to
become pages with their source, and large ones are copied. The pages of the API are made from docstrings.
Formulas become MathML, which browsers draw without a script, both in ``math`` fences and inside text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

import mini_dnn
from mini_dnn import ops

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

PAGES = ("*.md", *(f"{name}/**/*.md" for name in ("benchmarks", "data", "docs", "ladders", "layers")))
PAGES += ("milestones/**/*.md", "networks/**/*.md", "reports/**/*.md")
PICTURES = (".svg", ".png", ".jpg")
# The report must not be the index of its section.
REPORT, REPORT_HERE = "reports/h200/index.html", "reports/h200/page.html"
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".py": "python", ".sh": "bash", ".toml": "toml", ".yml": "yaml"}
THEIR_SHIM = re.compile(r"https://[^\"\s]+/iframe-worker/shim")
MOST_BYTES = 60_000  # of a file that becomes a page; larger files are copied
FENCE = re.compile(r"^(`{3,}).*?^\1`*[ ]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
ABSOLUTE = re.compile(r"[a-z]+:|#|/")
FORMULA = re.compile(r"\$`([^`\n]+)`\$")
LIST = re.compile(r"(?m)^(?!\s*(?:[-*]|\d+\.) |\s*$|#|\|)(.*\S.*)\n(?=(?:-|1\.) )")
API = {
    "mini_dnn": "Operations as functions, and devices",
    "mini_dnn.errors": "Errors",
    "mini_dnn.interop.function": "An operation as a function",
    "mini_dnn.device.base": "Devices",
    "mini_dnn.variant.variant": "Variants",
    "mini_dnn.variant.plan": "Steps of a plan",
    "mini_dnn.variant.folders": "Finding variants",
    "mini_dnn.ops.operation": "Operations",
    "mini_dnn.ops.problem": "Problems and arrays",
    "mini_dnn.ops.compare": "Comparing with float64",
    "mini_dnn.running.runner": "Running a variant",
    "mini_dnn.running.timing": "Op times",
    "mini_dnn.nn.network": "Networks in NumPy",
    "mini_dnn.nn.layers": "Layers in NumPy",
}


def on_config(config: Any) -> Any:
    """Set formulas, add other pages at the end of the navigation, and add each module to the API."""
    form = {"name": "math", "class": "math"}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [form | {"format": _formula}]}
    config.mdx_configs["pymdownx.inlinehilite"] = {"custom_inline": [form | {"format": _inline_formula}]}
    named = set(re.findall(r"[\w./]+\.md", str(config.nav)))
    others = [uri for uri in map(_uri, _pages()) if uri not in named]
    api = [{title: f"api/{name}.md"} for name, title in API.items()]
    config.nav[-1] = {"API": ["api/index.md", *api]}
    if others:
        config.nav.insert(-2, {"More": others})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the repository's pages, the files that they show or link to, and the API."""
    for page in _pages():
        files.append(File(_uri(page), str(ROOT), config.site_dir, use_directory_urls=False))
    for target in dict.fromkeys(target for page in _pages() for target in _targets(page)):
        files.append(_file_of(target, config))
    if (ROOT / REPORT).is_file():  # a handout has no report
        report = (ROOT / REPORT).read_text(encoding="utf-8").replace('{"root":"../.."', '{"root":""', 1)
        files.append(File.generated(config, REPORT_HERE, content=report))
    modules = "\n".join(f"- [{title}]({name}.md): `{name}`" for name, title in API.items())
    files.append(File.generated(config, "api/index.md", content=f"# API\n\n{modules}\n"))
    for name, title in API.items():
        more = _functions() if name == "mini_dnn" else ""
        files.append(File.generated(config, f"api/{name}.md", content=f"# {title}\n\n::: {name}\n{more}"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files into links to their pages, and GitHub's Markdown into Python-Markdown's."""
    source = ROOT / page.file.src_uri
    if not source.is_file():
        return markdown
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [_prose(markdown[end : fence.start()], source), fence[0]]
        end = fence.end()
    return "".join([*parts, _prose(markdown[end:], source)])


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Use the copy of the search's worker shim that is served here, because the theme would download one."""
    return THEIR_SHIM.sub(get_relative_url("worker.js", page.url), output)


def on_post_template(output: str, **_: Any) -> str:
    """Write the page for addresses that do not exist."""
    return THEIR_SHIM.sub("/worker.js", output)


def _functions() -> str:
    """What `mini_dnn` offers: mkdocstrings does not see functions that are made when they are used."""
    parts = ["\n::: mini_dnn.device.open_device\n"]
    for name in ops.names():
        function = getattr(mini_dnn, name)
        signature = f"```python\nmini_dnn.{name}{inspect.signature(function)}\n```"
        parts.append(f"\n## mini_dnn.{name}\n\n{signature}\n\n```text\n{inspect.getdoc(function)}\n```\n")
    return "".join(parts)


def _formula(source: str, *_: Any, **__: Any) -> str:
    return f'<div class="math">{convert(source.strip(), display="block")}</div>'


def _inline_formula(source: str, *_: Any, **__: Any) -> str:
    return str(convert(source))


def _prose(text: str, source: Path) -> str:
    def linked(match: re.Match[str]) -> str:
        return f"{match[1]}{_rewritten(match[2], source)}{match[3]}"

    return LIST.sub(r"\1\n\n", FORMULA.sub(r"`#!math \1`", LINK.sub(linked, text)).replace("][", "]\\["))


def _rewritten(link: str, source: Path) -> str:
    if ABSOLUTE.match(link):
        return link
    path, hash_, anchor = link.partition("#")
    target = (source.parent / path).resolve()
    if target.is_dir():
        name = "README.md" if (target / "README.md").is_file() else "files.md"
        return f"{path.rstrip('/')}/{name}{hash_}{anchor}"
    return f"{path}.md" if _is_source(target) else link  # pages of source code have no line anchors


def _pages() -> list[Path]:
    found = (path for pattern in PAGES for path in sorted(ROOT.glob(pattern)))
    return [path for path in found if HERE not in path.parents]


def _targets(page: Path) -> Iterator[Path]:
    """The files and folders of the repository that a page links to or shows."""
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if ABSOLUTE.match(link[1]):
            continue
        target = (page.parent / link[1].partition("#")[0]).resolve()
        if target.is_dir() and not (target / "README.md").is_file():
            yield target
            yield from (file for file in sorted(target.iterdir()) if file.is_file())
        elif target.is_file() and target.suffix != ".md" and _uri(target) != REPORT:
            yield target


def _file_of(target: Path, config: Any) -> File:
    uri = _uri(target)
    if target.is_dir():
        names = [file.name for file in sorted(target.iterdir()) if file.is_file()]
        lines = [f"- [{name}]({name}{'.md' * _is_source(target / name)})" for name in names]
        return File.generated(config, f"{uri}/files.md", content=f"# {uri}\n\n" + "\n".join(lines) + "\n")
    if not _is_source(target):
        return File(uri, str(ROOT), config.site_dir, use_directory_urls=False)
    text = target.read_text(encoding="utf-8")
    fence = "`" * (3 + max((len(ticks) for ticks in re.findall(r"`+", text)), default=0))
    language = LANGUAGES.get(target.suffix, "text")
    content = f"---\nhide: [navigation, toc]\n---\n# {uri}\n\n{fence}{language}\n{text}\n{fence}\n"
    return File.generated(config, f"{uri}.md", content=content)


def _is_source(target: Path) -> bool:
    """Whether a file is shown as a page, not copied as it is."""
    known = target.is_file() and target.suffix not in (*PICTURES, ".md", ".html", ".json", ".csv")
    return known and target.stat().st_size <= MOST_BYTES


def _uri(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
