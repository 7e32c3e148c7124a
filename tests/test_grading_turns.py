"""Hidden tests do not run at the same time as another submission."""

from __future__ import annotations

import threading
from pathlib import Path

from waiting import PATIENCE_S

from mini_dnn.grading.turns import turn


def test_who_is_alone_waits_for_others_and_they_for_it(tmp_path: Path) -> None:
    said: list[str] = []
    is_alone, may_end = threading.Event(), threading.Event()

    def first() -> None:
        with turn(tmp_path / "lock") as mine:
            mine.alone()
            said.append("alone")
            is_alone.set()
            assert may_end.wait(PATIENCE_S)
            said.append("ends")

    def second() -> None:
        with turn(tmp_path / "lock"):
            said.append("beside")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    with turn(tmp_path / "lock"):
        threads[0].start()
        said.append("here")
    assert is_alone.wait(PATIENCE_S)
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert said == ["here", "alone", "ends", "beside"]
