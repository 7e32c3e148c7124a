"""The measurements of `attention.py` on a GPU: candidates as CUDA graphs, turns, and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from attention_tables import Row

import mini_dnn
from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import find

# Names in PyTorch
BACKENDS = {"math": "MATH", "FlashAttention": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION"}
TURNS, WARM_UP = 41, 4
ENOUGH_MS = 400.0  # for a candidate in a mode: there are fewer turns if runs are long
FEWEST = 3  # the fewest turns
IN_A_ROW = 10  # runs of a warm turn
SLEEP = 100_000  # clocks during which the host queues a run and its events
FLUSH_BYTES = 1 << 29  # ten times the L2 cache of an H200
SCORES = 1 << 28  # float64 elements at a time in the reference

Op = Callable[[], Any]


@dataclass(frozen=True)
class Candidate:
    """A program that takes turns with others."""

    name: str
    problem: AttentionShape
    op: Op  # keeps the arrays alive that the graphs use
    once: Any  # a graph of one run
    many: Any  # a graph of `in_a_row` runs
    in_a_row: int
    result: Any  # (B,H,T,d), a view
    turns: int

    @property
    def named(self) -> Row:
        """The fields with which its rows begin."""
        return {"problem": self.problem.text, "variant": self.name, "layout": self.problem.layout}

    @property
    def warm_up(self) -> int:
        """Return the number of turns that do not count: few if runs are long."""
        return WARM_UP if self.turns > WARM_UP else 1


class Bench:
    """Data for all measurements: PyTorch, the memory that flushes the cache, and rows.

    Parameters
    ----------
    torch
        The module, which is only imported if there is a GPU.
    deviation
        The standard deviation of the scores.
    """

    def __init__(self, torch: Any, deviation: float = 1.0) -> None:
        self.torch = torch
        self.deviation = deviation
        self.stream = torch.cuda.Stream()  # graphs are captured on it
        self._flush = torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self._one = torch.zeros(1, device="cuda")

    def flush(self, mode: str) -> None:
        """Fill the L2 cache with lines of another array."""
        if mode == "written":
            self._flush.zero_()
        elif mode == "read":
            self._flush.max()

    def capture(self, op: Op, count: int) -> tuple[Any, Any]:
        """Capture a graph of ``count`` runs. Return it with the result of the last run."""
        torch, result = self.torch, None
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                op()
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for _ in range(count):
                result = op()
        return graph, result

    def timed(self, graph: Any) -> tuple[Any, Any]:
        """Return the events before and after a replay, which is queued while the GPU is busy."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda._sleep(SLEEP)
        start.record()
        graph.replay()
        end.record()
        return start, end

    def candidate(self, name: str, p: AttentionShape, op: Op, warm: bool = True) -> Candidate:
        """Prepare a candidate for turns. Without ``warm``, it has no graph for a warm cache."""
        once, result = self.capture(op, 1)
        for _ in range(2):
            start, end = self.timed(once)
        self.torch.cuda.synchronize()
        ms = max(1e-3, start.elapsed_time(end))
        in_a_row = max(1, min(IN_A_ROW, int(ENOUGH_MS / ms / FEWEST)))
        turns = max(FEWEST, min(TURNS, int(ENOUGH_MS / ms)))
        many = self.capture(op, in_a_row)[0] if warm else None
        return Candidate(name, p, op, once, many, in_a_row, result, turns)

    def take_turns(self, candidates: Sequence[Candidate], mode: str, most: int = TURNS) -> list[list[float]]:
        """Return the microseconds per run of each candidate, turn by turn."""
        found: list[list[float]] = [[] for _ in candidates]
        for turn in range(WARM_UP + most):
            events = []
            for times, one in zip(found, candidates, strict=True):
                if turn < one.warm_up + min(one.turns, most):
                    self.flush(mode)
                    if mode == "warm":
                        one.once.replay()  # warms the cache for the runs that count
                    events.append((times, one, *self.timed(one.many if mode == "warm" else one.once)))
            self.torch.cuda.synchronize()
            for times, one, start, end in events:
                if turn >= one.warm_up:
                    runs = one.in_a_row if mode == "warm" else 1
                    times.append(start.elapsed_time(end) * 1e3 / runs)
        return found

    def inputs(self, p: AttentionShape, draw: int = 0) -> tuple[Any, Any, Any]:
        """Return normal values q, k and v (B,H,T,d) in half, which differ between draws."""
        torch = self.torch
        torch.manual_seed(p.T + draw * 10_000)
        q, k, v = (torch.randn(p.B, p.H, p.T, p.d, device="cuda", dtype=torch.half) for _ in range(3))
        return q * self.deviation, k, v

    def ops(
        self, p: AttentionShape, given: Sequence[Any], impl: Sequence[str], backends: Sequence[str]
    ) -> Iterator[tuple[str, Op]]:
        """Yield what is compared: its name, and a function that runs it and returns o (B,H,T,d)."""
        torch, packed = self.torch, p.layout == "packed"
        arrays = [torch.stack([x.transpose(1, 2) for x in given], 2)] if packed else list(given)
        views = [arrays[0][:, :, i].transpose(1, 2) for i in range(3)] if packed else arrays
        for name in impl:
            if limit := find(name).limit_for(p):
                print(f"  {name}, {p.layout}: {limit}", flush=True)
                continue
            out = torch.full(p.arrays["o"].shape, float("nan"), device="cuda", dtype=torch.half)
            yield name, partial(_ours, arrays, out, p.causal, name, packed)
        attend = partial(torch.nn.functional.scaled_dot_product_attention, *views, is_causal=p.causal)
        for name in backends:
            yield name, partial(_by, torch, BACKENDS[name], attend)

    def floors(self, p: AttentionShape) -> list[Candidate]:
        """Candidates that are lower bounds for attention."""
        source = self.torch.zeros(2, p.B * p.H * p.T * p.d, device="cuda", dtype=self.torch.half)
        copy = partial(self.torch.empty_like(source).copy_, source)
        ops = {"empty": partial(self._one.add_, 1), "copy": copy}
        return [self.candidate(name, p, op) for name, op in ops.items()]

    def candidates(
        self,
        p: AttentionShape,
        given: Sequence[Any],
        impl: Sequence[str],
        backends: Sequence[str],
        warm: bool = True,
    ) -> list[Candidate]:
        """Prepare all candidates that run, and print why the others do not."""
        found = []
        for name, op in self.ops(p, given, impl, backends):
            try:
                found.append(self.candidate(name, p, op, warm))
            except Exception as error:  # a library may raise anything, which must not end the benchmark
                reason = str(error).strip().partition("\n")[0]
                print(f"  {name}, {p.layout}: {type(error).__name__}: {reason}", flush=True)
                self.torch.cuda.synchronize()
        return found

    def reference(self, p: AttentionShape, q: Any, k: Any, v: Any) -> Iterator[tuple[slice, Any]]:
        """Yield some heads at a time, with their answers in float64 ``(heads,T,d)``."""
        q, k, v = (x.reshape(p.B * p.H, p.T, p.d) for x in (q, k, v))
        step = max(1, SCORES // p.T**2)
        for first in range(0, len(q), step):
            some = slice(first, first + step)
            scores = p.factor * (q[some].double() @ k[some].double().transpose(1, 2))
            if p.causal:
                scores.masked_fill_(scores.new_ones(p.T, p.T).triu(1).bool(), -float("inf"))
            yield some, scores.softmax(-1) @ v[some].double()

    def errors(self, p: AttentionShape, given: Sequence[Any], candidates: Sequence[Candidate]) -> list[Row]:
        """Return the largest, the median and the relative error (in the norm) of each candidate."""
        torch = self.torch
        results = [one.result.reshape(p.B * p.H, p.T, p.d) for one in candidates]
        parts: list[list[Any]] = [[] for _ in candidates]
        squares = 0.0
        for some, right in self.reference(p, *given):
            squares += float(right.square().sum())
            for part, result in zip(parts, results, strict=True):
                part.append((result[some].double() - right).abs())
        rows = []
        for one, part in zip(candidates, parts, strict=True):
            error = torch.cat(part).flatten()
            figures = {"largest": float(error.max()), "median": float(error.median())}
            rows.append({**one.named, **figures, "relative": float(error.norm()) / squares**0.5})
        return rows


def _ours(arrays: Sequence[Any], out: Any, causal: bool, impl: str, packed: bool) -> Any:
    mini_dnn.attention(*arrays, causal=causal, out=out, impl=impl)
    return out.transpose(1, 2) if packed else out


def _by(torch: Any, backend: str, attend: Op) -> Any:
    """Attention with one backend of PyTorch. ``math`` computes in half instead of its default, float."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        return attend()
