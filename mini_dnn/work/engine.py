"""The interface of engines for the loop in `run.py`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

CHUNK_S = 1.0  # if the overhead of a chunk is a millisecond


class Engine:
    """Creates an executor, and describes how to use it.

    Attributes
    ----------
    workers
        The number of chunks that can run at a time.
    least_s, most_s
        Seconds that a chunk should take, if there are enough items.
    item_s
        Seconds that an item takes, if the profile says so.
    poll_s
        Seconds between two checks for results of running chunks.
    grace_s
        Seconds after the end of a worker until its files are visible, at most.
    shares_fate
        Whether the death of one worker ends all others.
    inside
        Whether all chunks run in this process, while `submit` waits.
    keeps
        Whether a worker keeps the set-up that its chunks share until the executor ends.
    by_hand
        Whether chunks are written to a script that the user submits: see `write`.
    """

    workers = 1
    least_s, most_s = 0.0, CHUNK_S
    poll_s, grace_s = 1.0, 5.0
    item_s: float | None = None
    shares_fate = inside = keeps = by_hand = False

    @property
    def window(self) -> int:
        """The number of chunks that may be submitted at a time, so that one more waits at each worker."""
        return 2 * self.workers

    def open(self, folder: Path) -> Executor:
        """Create an executor. It is called again if an executor breaks."""
        raise NotImplementedError

    def write(self, folder: Path, chunks: Sequence[str]) -> Path:
        """Write a script that runs chunks, which the user submits."""
        raise NotImplementedError

    def adopted(self) -> dict[str, Future[None]]:
        """Chunks of an earlier run that are still waiting or running, by name."""
        return {}

    def is_final(self, words: str) -> bool:
        """Whether somebody cancelled a chunk, so that it is not submitted again."""
        return False

    def close(self, pool: Executor) -> None:
        """Everything is done."""
        pool.shutdown()

    def abandon(self, pool: Executor) -> None:
        """End immediately."""
        pool.shutdown(wait=False, cancel_futures=True)
