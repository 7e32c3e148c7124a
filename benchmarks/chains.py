"""Time chains of dependent matrix products in a CUDA graph: c of each is a of the next, as in a network.

``python benchmarks/chains.py --impl gemm/cublas,gemm/v11 --chains 512x512,6304x768x3072 --out FILE.json``

A chain ``MxW0xW1`` multiplies M rows by matrices ``(W0,W1)``, ``(W1,W0)``, ``(W0,W1)``, and so on, in halves.
Each product has its own constant b, and all of them together are larger than the L2 cache. The first a is
always the same, and alpha preserves the magnitude of the values. As in ``products.py``, candidates take turns
on the same arrays, and kernels that may start early have additional rows ``early``. The first product is
compared with float64. The result of a chain with early starts must have the same bits as that of the same
kernels launched in order. Rows of a wrong result have a field ``wrong``, and the exit status is then 1.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import products_checks
from command_line import add_impl, add_out, check_variants, head, listed, parser_of, some_of, write
from products import MODES, Candidate, Mode, Row, build_plans, late, timed
from products_checks import Verdict, status_of_rows

from mini_dnn.cli import status_of
from mini_dnn.device import Device, open_device
from mini_dnn.device.base import Buffer
from mini_dnn.errors import UsageError
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.execute import Execution, compile_others
from mini_dnn.variant import Planned, find

MOVED = 100e6  # bytes of all b: twice the L2 cache of an H100
FEWEST, MOST = 4, 2048  # number of products
NOTE = "microseconds a product of a chain, turn by turn"

Planning = Callable[[GemmShape], Planned]


@dataclass(frozen=True)
class Chain:
    """The number of rows, and the widths between which products alternate."""

    text: str
    rows: int
    widths: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Chain:
        """Parse a chain such as ``6304x768x3072``.

        Raises
        ------
        UsageError
            The text is not the number of rows and one or more widths.
        """
        words = text.split("x")
        if len(words) < 2 or not all(word.isdecimal() and int(word) for word in words):
            raise UsageError(
                f"--chains {text}: expected the number of rows and then widths, such as 6304x768x3072"
            )
        rows, *widths = map(int, words)
        return cls(text, rows, tuple(widths))

    @property
    def problems(self) -> list[GemmShape]:
        """A problem for each pair of widths.

        Products of normal values preserve the mean of their logarithm.
        """
        pairs = zip(self.widths, self.widths[1:] + self.widths[:1], strict=True)
        return [
            GemmShape(self.rows, n, k, "fp16", "fp16", alpha=math.exp(0.5 / k) / math.sqrt(k), constant="b")
            for k, n in pairs
        ]

    @property
    def layers(self) -> int:
        """The number of products: complete rounds of all widths."""
        each = sum(2 * p.n * p.k for p in self.problems)
        rounds = min(max(FEWEST, math.ceil(MOVED / each)), MOST)
        return rounds * len(self.widths)

    @property
    def flops(self) -> float:
        """The mean number of FLOPs of a product."""
        return statistics.fmean(p.flops for p in self.problems)


@dataclass(frozen=True)
class Memory:
    """The arrays of all candidates: the first a, every b, and two buffers for results, used in turn."""

    first: Buffer
    weights: list[Buffer]
    results: tuple[Buffer, Buffer]

    def of(self, layer: int) -> dict[str, Buffer]:
        """Return the arrays of a product."""
        a = self.results[(layer - 1) % 2] if layer else self.first
        return {"a": a, "b": self.weights[layer], "c": self.results[layer % 2]}


@contextmanager
def memory(chain: Chain, device: Device) -> Iterator[Memory]:
    """Fill a chain's arrays with normal values."""
    rng = np.random.default_rng(0)
    problems, layers = chain.problems, chain.layers
    pool = rng.standard_normal(4 * max(p.n * p.k for p in problems), np.float32).astype(np.float16)
    with ExitStack() as stack:

        def buffer(name: str, *shape: int) -> Buffer:
            found = device.empty(name, (1, *shape), np.dtype(np.float16), fill=False)
            stack.callback(found.free)
            return found

        weights = []
        for layer in range(layers):
            p = problems[layer % len(problems)]
            weights.append(buffer("b", p.k, p.n))
            start = rng.integers(pool.size - p.n * p.k)
            device.copy_in(weights[-1], pool[start : start + p.n * p.k].reshape(1, p.k, p.n))
        first = buffer("a", chain.rows, chain.widths[0])
        device.copy_in(
            first, rng.standard_normal((1, chain.rows, chain.widths[0]), np.float32).astype(np.float16)
        )
        widest = max(chain.widths)
        yield Memory(first, weights, (buffer("c", chain.rows, widest), buffer("c", chain.rows, widest)))


@contextmanager
def candidate(
    name: str, chain: Chain, plans: Sequence[Planned], at: Memory, device: Device
) -> Iterator[Candidate]:
    """Yield a graph of a whole chain."""
    with ExitStack() as stack:
        executions = []
        for planned in plans:
            others = compile_others(planned, device)
            module = device.compile(planned.source, planned.defines)
            execution = Execution(planned, module, device, others=others)
            for key in "abc":
                execution.buffers.pop(key).free()
            stack.callback(free_scratch, execution)
            executions.append(execution)

        def work() -> None:
            for layer in range(chain.layers):
                execution = executions[layer % len(plans)]
                execution.buffers.update(at.of(layer))
                execution.kernels()

        graph = device.capture(work)
        stack.callback(graph.free)
        yield Candidate(name, graph, chain.layers)


def free_scratch(execution: Execution) -> None:
    """Free the buffers that belong to an execution and not to the chain."""
    for key in "abc":
        execution.buffers.pop(key, None)
    execution.free()


def result(one: Candidate, chain: Chain, at: Memory, device: Device) -> np.ndarray:
    """Compute a chain again, and return its last result."""
    for buffer in at.results:
        device.fill(buffer)
    one.graph.replay()
    found = np.empty(at.results[0].shape, np.float16)
    device.copy_out(at.results[(chain.layers - 1) % 2], found)
    return found.reshape(-1)[: chain.rows * chain.widths[0]]


def first_product(planned: Planned, at: Memory, device: Device) -> Verdict:
    """Whether the first product agrees with float64."""
    p = planned.problem
    execution = Execution(planned, device.compile(planned.source, planned.defines), device)
    for key, buffer in at.of(0).items():
        execution.buffers.pop(key).free()
        execution.buffers[key] = buffer
    execution.kernels()
    arrays = {key: np.empty(p.arrays[key].shape, np.float16) for key in "ab"}
    for key, array in arrays.items():
        device.copy_out(execution.buffers[key], array)
    c = np.empty(at.results[0].shape, np.float16)
    device.copy_out(at.results[0], c)
    free_scratch(execution)
    outputs = {"c": c.reshape(-1)[: p.m * p.n].reshape(1, p.m, p.n)}
    return products_checks.compare(planned, arrays, outputs)


def measure(
    chain: Chain, plannings: Mapping[str, Planning], modes: Sequence[Mode], device: Device
) -> list[Row]:
    """Measure one chain: every candidate, in order and early, in every mode."""
    print(f"{chain.text}: {chain.layers} products", flush=True)
    plans: dict[str, list[Planned]] = {}
    for name, planning in plannings.items():
        early = [planning(p) for p in chain.problems]
        in_order = [late(planned) for planned in early]
        plans |= {name: in_order} | ({f"{name} early": early} if early != in_order else {})
    with ExitStack() as stack:
        at = stack.enter_context(memory(chain, device))
        candidates: list[Candidate] = []
        ends: dict[str, np.ndarray] = {}
        for name, of_chain in plans.items():
            one = stack.enter_context(candidate(name, chain, of_chain, at, device))
            verdict = first_product(of_chain[0], at, device)
            ends[name] = result(one, chain, at, device)
            wrong = [] if verdict.ok else [verdict.found]
            wrong += wrong_end(ends[name], ends[name.removesuffix(" early")])
            candidates.append(replace(one, wrong="; ".join(wrong)))
            print(f"  {name:34s} {Verdict(not wrong, candidates[-1].wrong or verdict.found)}", flush=True)
        about = {"chain": chain.text, "products": chain.layers}
        return [{**about, **row} for mode in modes for row in timed(candidates, mode, device, chain.flops)]


def wrong_end(end: np.ndarray, in_order: np.ndarray) -> list[str]:
    """Return what is wrong with the last result of a chain. ``in_order`` is that without early starts."""
    wrong = [] if np.isfinite(end).all() else ["the chain does not end with numbers"]
    return wrong + ([] if np.array_equal(end, in_order) else ["the chain ends with other bits than in order"])


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = parser_of(__doc__)
    add_impl(parser, more="; the others are compared with the first")
    parser.add_argument(
        "--chains", type=listed, required=True, help="rows and widths of chains, such as 512x512"
    )
    parser.add_argument(
        "--modes",
        type=some_of(MODES),
        default="burst",
        help="burst, sustained, or both: see products.py (default: %(default)s)",
    )
    add_out(parser)
    given = parser.parse_args(words)
    check_variants(given.impl, "gemm")
    chains = [Chain.parse(text) for text in given.chains]
    modes = [MODES[name] for name in given.modes]
    rows: list[Row] = []
    with closing(open_device("cuda")) as device:
        planning = {name: plan_of(name, device) for name in given.impl}
        plans = (one(p) for chain in chains for p in chain.problems for one in planning.values())
        build_plans(plans, device.arch)
        about = head(given.impl, note=NOTE, device=device.description)
        for chain in chains:
            rows += measure(chain, planning, modes, device)
            write(given.out, {**about, "rows": rows})  # after each one, in case that the run is interrupted
    return status_of_rows(rows, "chain")


def plan_of(name: str, device: Device) -> Planning:
    """Return a function that plans a variant on a device."""
    return lambda problem: find(name).planned(problem, device.max_shared_bytes)


if __name__ == "__main__":
    sys.exit(status_of(main))
