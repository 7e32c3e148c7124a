"""Every kernel file begins with what a reader needs to know before the code."""

import re

import pytest

from mini_dnn.variant import Variant, find, names
from mini_dnn.variant.header import sections

SECTIONS = ["Idea", "Layout", "Mapping", "Roofline", "Gain", "Limits", "Hazards", "Source"]
KERNELS = [variant for variant in map(find, names()) if variant.host is None]


@pytest.mark.parametrize("variant", KERNELS, ids=lambda variant: variant.name)
def test_header_has_all_sections(variant: Variant) -> None:
    text = variant.source.read_text()
    assert text.startswith(f"// {variant.name}: ")
    found = sections(text)
    assert list(found) == SECTIONS
    assert all(len(words) > 10 for words in found.values())
    if variant.parent is None:
        assert variant.name == variant.operation.baseline, "only the first rung of a ladder has no parent"
    else:
        assert variant.parent in found["Gain"], "the gain is over the declared parent"
    assert re.search(r"\d ms\b", found["Roofline"])


def test_sections_are_read_as_written() -> None:
    text = "// a/b: c.\n//\n// Idea      one\n//           two\n// Gain      none\nint x;\n// Source  no\n"
    assert sections(text) == {"Idea": "one two", "Gain": "none"}
