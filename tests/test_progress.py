"""Notes on a terminal during slow work."""

import io

import pytest

from mini_dnn.progress import busy


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_note_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two would share a line, for example those of nvcc and of the verb that calls it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with busy("the outer one"), busy("the inner one"):
        pass
    with busy("the next one"):
        pass
    shown = terminal.getvalue()
    assert [words in shown for words in ("the outer one", "the inner one", "the next one")] == [
        True,
        False,
        True,
    ]
