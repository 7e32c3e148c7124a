"""What the loop in `run.py` asks of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

CHUNK_S = 1.0  # where a chunk costs a millisecond


class Engine:
    """Gives an executor, and says how to use it.

    Attributes
    ----------
    workers
        How many chunks can run at a time.
    least_s, most_s
        Seconds that a chunk should take, if there are enough items.
    item_s
        Seconds that an item takes, if somebody said so.
    poll_s
        Seconds until results of chunks that are under way are looked at.
    grace_s
        Seconds by which files may be seen later than the end of their worker.
    shares_fate
        Whether the death of one worker ends all others.
    inside
        Whether all chunks run in this process, while `submit` waits.
    keeps
        Whether a worker keeps what its chunks share set up, as it ends with the executor.
    by_hand
        Whether chunks are not submitted, but written into a script: see `write`.
    """

    workers = 1
    least_s, most_s = 0.0, CHUNK_S
    poll_s, grace_s = 1.0, 5.0
    item_s: float | None = None
    shares_fate = inside = keeps = by_hand = False

    @property
    def window(self) -> int:
        """Chunks that may be given to the executor at a time: the next one waits at each worker."""
        return 2 * self.workers

    def open(self, folder: Path) -> Executor:
        """An executor; called again if one is broken."""
        raise NotImplementedError

    def write(self, folder: Path, chunks: Sequence[str]) -> Path:
        """A script that runs chunks, where somebody submits it by hand."""
        raise NotImplementedError

    def adopted(self) -> dict[str, Future[None]]:
        """Chunks of an earlier run that are still waiting or running, by name."""
        return {}

    def is_final(self, words: str) -> bool:
        """Whether somebody ended a chunk on purpose, so that it is not given out again."""
        return False

    def close(self, pool: Executor) -> None:
        """Everything is done."""
        pool.shutdown()

    def abandon(self, pool: Executor) -> None:
        """End at once."""
        pool.shutdown(wait=False, cancel_futures=True)
