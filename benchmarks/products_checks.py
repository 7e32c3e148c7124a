"""Problems of random sizes for ``products.py``, and checks of the results of products."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn import ops
from mini_dnn.cli.common import DIFFERS
from mini_dnn.errors import UsageError
from mini_dnn.ops import Arrays
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.verify import verify
from mini_dnn.variant import Planned

OPERATION = ops.find("gemm")
LARGEST = 4096  # side of a random problem


@dataclass(frozen=True)
class Verdict:
    """Whether a result is right, with the errors that were found."""

    ok: bool
    found: str

    def __str__(self) -> str:
        """The text that is printed."""
        return f"{'agrees' if self.ok else 'WRONG'}: {self.found}"


Check = Callable[[Planned, Arrays, Arrays], Verdict]


def compare(planned: Planned, arrays: Arrays, outputs: Arrays) -> Verdict:
    """Whether results agree with float64."""
    found = verify(OPERATION, planned.problem, arrays, outputs, planned.precision)
    return Verdict(found.ok, str(found))


def audit(rng: np.random.Generator, planned: Planned, arrays: Arrays, outputs: Arrays) -> Verdict:
    """The same in a fraction of the time, by sums over a few columns, which ``rng`` chooses."""
    assert OPERATION.audit, "products have one"
    wrong = OPERATION.audit(planned.problem, arrays, outputs, planned.precision, rng)
    return Verdict(not wrong, wrong or "audited")


def status_of_rows(rows: Sequence[Mapping[str, Any]], what: str) -> int:
    """Name the rows whose results are wrong, and return the exit status. ``what`` is the field to name."""
    wrong = {(row["variant"], row[what]): row["wrong"] for row in rows if "wrong" in row}
    for (variant, where), found in wrong.items():
        print(f"WRONG: {variant} at {where}: {found}. Its times do not count", file=sys.stderr)
    return DIFFERS if wrong else 0


def random_problems(count: int, multiple: int, seed: int) -> Iterator[tuple[Any, Arrays]]:
    """Yield problems of random sizes in halves, with inputs from one pool.

    Raises
    ------
    UsageError
        No size up to `LARGEST` is a multiple of ``multiple``.
    """
    if multiple > LARGEST:
        raise UsageError(f"--multiple {multiple}: random sizes are at most {LARGEST}")
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal(LARGEST**2, np.float32).astype(np.float16)
    most = LARGEST // multiple
    sizes = rng.integers(1, most + 1, (count, 3))
    if multiple > 1:
        sizes[::2] = np.exp(rng.uniform(0, np.log(most + 1), sizes[::2].shape))  # rounded down
    for m, n, k in (sizes * multiple).tolist():
        problem = GemmShape(m, n, k, "fp16", "fp16")
        yield problem, {"a": pool[: m * k].reshape(1, m, k), "b": pool[: k * n].reshape(1, k, n)}
