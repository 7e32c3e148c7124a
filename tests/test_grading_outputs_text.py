"""Untrusted text is made harmless."""

import unicodedata

import grade_samples as samples
import pytest
from hypothesis import given
from markdown_it import MarkdownIt

from mini_dnn.grading.outputs.github_classroom import disarmed
from mini_dnn.grading.outputs.text import MESSAGE_CHARACTERS, clean, code_block, code_span, one_line


@given(samples.nasty)
def test_clean_text_has_no_controls(text: str) -> None:
    found = clean(text)
    controls = [
        c for c in found if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    assert not controls
    assert clean(found) == found


def test_escape_sequences_go_and_the_text_stays() -> None:
    assert clean("\x1b[1;31mred\x1b[0m \x9b2Kline\r\nnext\x1b]0;title\x07.") == "red line\nnext."
    assert clean("a\ud800b\x00c\u202ed\te") == "a\ufffdbcd\te"


def test_huge_text_keeps_its_head_and_its_tail() -> None:
    found = clean("first" + "x" * 10_000_000 + "last")
    assert len(found) < MESSAGE_CHARACTERS + 100
    assert found.startswith("first")
    assert found.endswith("last")
    assert "characters cut" in found


def test_names_are_one_short_line() -> None:
    assert one_line(" a\n\tb ") == "a b"
    assert one_line("\x07") == "(no name)"
    assert len(one_line("x" * 1000)) == 200


@pytest.mark.parametrize("text", ["plain", "`", "``", "a`b", "`a`", "```\ntext\n````"])
def test_code_cannot_be_ended_from_within(text: str) -> None:
    (block,) = MarkdownIt("commonmark").parse(code_block(text))
    assert block.type == "fence"
    assert block.content == text + "\n"
    (part,) = MarkdownIt("commonmark").parse(code_span(text))[1].children or ()
    assert part.type == "code_inline"
    assert part.content == one_line(text)


def test_workflow_commands_are_disarmed() -> None:
    assert disarmed("::error::x\n  ::stop-commands::y\na::b\n##[group]z") == (
        ": :error::x\n  : :stop-commands::y\na::b\n# #[group]z"
    )
