"""Handouts: the variants that come along, and pages without what is absent."""

from pathlib import Path

import pytest

from mini_dnn.handout.pages import anchors, broken_links, pruned, site, with_impl
from mini_dnn.handout.parts import divide, leaks
from mini_dnn.variant import find
from mini_dnn.variant.given import given

pytestmark = pytest.mark.whole

PAGE = """# A page

[Gone](gone.md), [there](there.md#part) and [lost](there.md#lost); ![a picture](gone.svg)

![a picture](gone.svg)

| variant | idea | lesson |
| --- | --- | --- |
| `m1/direct` | one thread an output, unlike `m3/fusion` | [there](there.md) |
| `m3/fusion` | all in one | [there](there.md) |

| verb | for example |
| --- | --- |
| `diff` | `run.py diff m3/fusion` |

| to | read |
| --- | --- |
| learn | [the other page](there.md) |
| cheat | [a lost page](gone.md) |

| only | row |
| --- | --- |
| `m3/fusion` | it |

```sh
python run.py --impl m1
python run.py --impl m3/fusion
```

```python
find("m3/fusion")
```

```python
import this


import that
```

## All of it is about solutions

<!-- solutions:start -->
So is this.
<!-- solutions:end -->

## Part
"""


def test_what_is_kept_comes_with_its_ancestors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.handout.parts.leaks", lambda *_: set())
    parts = divide(["m3/restrict"])
    assert {"m1/cpu", "m1/direct", "m2/unroll_gemm", "m3/fusion", "m3/restrict"} == set(parts.kept)
    assert "milestones/m3/README.md" in parts.files
    assert "milestones/m3/fp16/kernel.cu" in parts.absent
    assert parts.impl == "m2"


def test_a_version_is_a_name() -> None:
    """It follows the rule of ``--impl``: ``gemm/v1`` is not a prefix of ``gemm/v10_small``."""
    assert given(["gemm/v1"], "--keep") == ("gemm/v0_naive", "gemm/v1_coalesced")


def test_what_is_kept_comes_with_the_variants_that_it_calls() -> None:
    """The name may be in a constant."""
    assert "gemm/v3_registers" in given(["m3/ladder_gemm"], "--keep")


def test_a_page_is_pruned() -> None:
    files = ["page.md", "there.md"]
    found = pruned({"page.md": PAGE, "there.md": "# There\n\n## Part\n\nYes.\n"}, files, ["m3/fusion"])[
        "page.md"
    ]
    assert "Gone, [there](there.md#part) and lost" not in found, "a line with a lost picture goes"
    assert "| `m1/direct` | one thread an output, unlike `m3/fusion` | [there](there.md) |" in found
    assert "| `m3/fusion`" not in found
    assert "| `diff` | – |" in found
    assert "| learn | [the other page](there.md) |" in found
    assert "| cheat |" not in found, "nothing is left of its cell"
    assert "| only |" not in found
    assert "python run.py --impl m1\n```" in found
    assert "find(" not in found
    assert "import this\n\n\nimport that" in found, "code keeps its empty lines"
    assert anchors(found) == {"a-page"}
    assert not broken_links({"page.md": found}, files)


def test_a_shortened_name_of_a_variant_that_is_there_stays() -> None:
    rows = [f"| `ladders/gemm/{name}` | it |\n" for name in ("v3", "v4")]
    page = "# A page\n\n| variant | idea |\n| --- | --- |\n" + "".join(rows)
    found = pruned({"page.md": page}, ["page.md", "ladders/gemm/v3_shared/kernel.cu"], [])["page.md"]
    assert [row in found for row in rows] == [True, False]


def test_a_link_to_a_heading_that_is_gone_becomes_text() -> None:
    pages = {"a.md": "# A\n\n[x](b.md#lost) [y](#a) [z](https://example.org/#q)\n", "b.md": "# B\n\nText.\n"}
    assert "x [y](#a) [z](https://example.org/#q)" in pruned(pages, ["a.md", "b.md"], [])["a.md"]


def test_a_link_over_two_lines_becomes_text() -> None:
    page = "# A\n\nRead [the\nother page](b.md), [that\npart](#lost) and [this\npart](#a) at [0, 1).\n"
    page += "\n[c](c.md) ([d\ne](d.md))\n"
    assert broken_links({"a.md": page}, ["a.md"]) == ["a.md: b.md", "a.md: #lost", "a.md: c.md", "a.md: d.md"]
    found = pruned({"a.md": page}, ["a.md"], [])["a.md"]
    assert found == "# A\n\nRead the\nother page, that\npart and [this\npart](#a) at [0, 1).\n\nc\n"


def test_a_row_that_only_leads_to_a_heading_that_is_gone_is_removed() -> None:
    page = "# A\n\n| to | read |\n| --- | --- |\n| add | [b](#lost) |\n| run | [a](#a), [b](#lost) |\n"
    assert pruned({"a.md": page}, ["a.md"], [])["a.md"].splitlines()[4:] == ["| run | [a](#a), b |"]


def test_the_site_has_the_pages_that_are_there() -> None:
    config = """watch: [../../README.md, ../../docs, ../../ladders]
nav:
  - Start: README.md
  - Lessons:
      - Ladders:
          - ladders/gemm/README.md
  - Use it:
      - docs/interop.md
      - docs/course.md
  - API: api/index.md
"""
    assert (
        site(config, ["README.md", "docs/interop.md"])
        == """watch: [../../README.md, ../../docs]
nav:
  - Start: README.md
  - Use it:
      - docs/interop.md
  - API: api/index.md
"""
    )


def test_commands_take_a_variant_that_is_there() -> None:
    text = 'run.py --impl m3 --batch 1; new x --from m2; conv2d(impl="m3"); --impl m3/mine'
    expected = 'run.py --impl m1 --batch 1; new x --from m1; conv2d(impl="m1"); --impl m3/mine'
    assert with_impl(text, ["m2", "m3"], "m1") == expected


def test_a_piece_of_a_solution_is_found_in_any_file(tmp_path: Path) -> None:
    kernel = find("m3/fusion").source
    lines = kernel.read_text().splitlines()
    (tmp_path / "page.md").write_text("# A page\n\n```cuda\n" + "\n".join(lines[-25:]) + "\n```\n")
    (tmp_path / "own.md").write_text("# My own\n\nint main() { return 0; }\n")
    assert leaks(["page.md", "own.md"], [kernel], [], tmp_path) == {"page.md"}
    assert leaks(["page.md", "own.md"], [kernel], [kernel], tmp_path) == set()
