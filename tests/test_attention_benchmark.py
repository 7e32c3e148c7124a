"""The parts of the attention benchmark that need no GPU: problems, the order of measurements, tables."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attention as benchmark
import numpy as np
import pytest
from attention_gpu import Bench, Candidate
from attention_tables import medians, outcome, table, wrong_words

from mini_dnn.errors import UsageError
from mini_dnn.interop.calls import CALLS
from mini_dnn.ops.attention import AttentionShape

P = AttentionShape(1, 2, 65, 64)


def row(variant: str, mode: str, *us: float, problem: str = P.text) -> dict[str, Any]:
    return {"problem": problem, "variant": variant, "layout": "contiguous", "mode": mode, "us": list(us)}


def error(variant: str, largest: float, relative: float = 1e-4, problem: str = P.text) -> dict[str, Any]:
    return {
        "problem": problem,
        "variant": variant,
        "largest": largest,
        "median": largest / 10,
        "relative": relative,
    }


def test_problems_of_the_command_line() -> None:
    words = ["--impl", "attention/v6", "--tokens", "197,1025", "--heads", "2,3", "--causal"]
    found = benchmark.problems_of(benchmark.parsed(words))
    assert found == [AttentionShape(2, 3, T, 64, causal=True) for T in (197, 1025)]
    assert benchmark.problems_of(benchmark.parsed(["--impl", "x", "--tokens", "", "--random", "1"])) == []
    for words in (["--tokens", ""], ["--heads", "12"]):
        with pytest.raises(UsageError, match=r"with --tokens|--heads: expected the batch size"):
            benchmark.problems_of(benchmark.parsed(["--impl", "x", *words]))


def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(
        __version__="2.11",
        no_grad=nullcontext,
        cuda=SimpleNamespace(current_device=lambda: 0),
        backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91900)),
    )
    device = SimpleNamespace(description="a GPU")
    monkeypatch.setattr(benchmark, "pytorch", lambda: torch)
    monkeypatch.setattr(CALLS, "device", lambda gpu: device)
    monkeypatch.setattr(benchmark, "Bench", lambda *_: None)
    monkeypatch.setattr(benchmark, "build_ahead", lambda *_: None)
    measured: list[AttentionShape] = []

    def measure_random(bench: Any, p: AttentionShape, impl: list[str]) -> tuple[list[Any], list[Any]]:
        if measured:
            raise KeyboardInterrupt
        measured.append(p)
        return [row("attention/v9", "written", 2.0)], [error("attention/v9", 1e-4)]

    monkeypatch.setattr(benchmark, "measure_random", measure_random)
    out = tmp_path / "random.json"
    words = ["--impl", "attention/v9", "--tokens", "", "--random", "2", "--out", str(out)]
    with pytest.raises(KeyboardInterrupt):
        benchmark.main(words)
    found = json.loads(out.read_text())
    assert [len(found[name]) for name in ("rows", "random", "random_errors")] == [0, 1, 1]
    assert (found["device"], found["versions"]["cudnn"]) == ("a GPU", "91900")


def test_random_problems_are_spread() -> None:
    found = benchmark.random_problems(100)
    assert found == benchmark.random_problems(100)
    assert found != benchmark.random_problems(100, seed=1)
    assert all(p.T % 2 == 1 and p.T <= 4096 and 1 <= p.B * p.H <= 1024 and p.d == 64 for p in found)
    heads = np.array([p.B * p.H for p in found])
    assert 30 < (heads < 32).sum() < 70  # half of the logarithms are below 5 of 10
    assert 30 < sum(p.T < 2048 for p in found) < 70
    assert {p.H for p in found} >= {1, 2, 3}


def test_turns_that_count() -> None:
    """The first turns do not count; long runs have few turns; warm turns have several runs."""
    seen: list[Any] = []

    class Event:
        def __init__(self, ms: float) -> None:
            self.ms = ms

        def elapsed_time(self, end: "Event") -> float:
            return end.ms - self.ms

    bench = Bench.__new__(Bench)
    bench.torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: seen.append("wait")))
    bench.flush = seen.append  # type: ignore[method-assign]
    bench.timed = lambda graph: (Event(0), Event(graph))  # type: ignore[method-assign]
    warmed: list[None] = []

    class Graph(float):
        def replay(self) -> None:
            warmed.append(None)

    quick = Candidate("quick", P, dict, Graph(0.25), 2.0, 10, None, 41)
    long = Candidate("long", P, dict, Graph(500), 500.0, 1, None, 3)
    assert bench.take_turns([quick, long], "read", most=5) == [[250.0] * 5, [500e3] * 3]
    assert (seen.count("read"), len(warmed)) == (9 + 4, 0)
    assert bench.take_turns([quick, long], "warm", most=5) == [[200.0] * 5, [500e3] * 3]
    assert len(warmed) == 9 + 4
    assert quick.named == {"problem": P.text, "variant": "quick", "layout": "contiguous"}


def test_the_better_layout_counts() -> None:
    rows = [row("a", "warm", 3.0, 5.0, 90.0), row("a", "warm", 4.0, 4.5, 4.0), row("a", "read", 7.0)]
    assert medians(rows) == {("a", "warm"): 4.0, ("a", "read"): 7.0}


def test_table() -> None:
    rows = [row(name, mode, us) for name, us in (("a", 2.0), ("cuDNN", 3.0)) for mode in ("written", "read")]
    lines = table([*rows, row("empty", "warm", 1.0)], [error("a", 2e-4), error("a", 3e-4)]).splitlines()
    assert lines[0] == "| us | written | read | warm | cuDNN over it | error, largest | median |"
    assert lines[2] == "| a | 2.00 | 2.00 |  | 1.50 / 1.50 / - | 3.0e-04 | 3.0e-05 |"
    assert lines[4] == "| empty |  |  | 1.00 | - / - / - |  |  |"


def test_how_random_problems_went() -> None:
    problems = ["1,1,7,64", "1,1,9,64", "1,1,11,64"]
    rows = [row("cuDNN", "written", 5.0, problem=p) for p in problems]
    rows += [row("a", "written", us, problem=p) for us, p in zip((4.0, 6.0), problems, strict=False)]
    errors = [error("a", 1e-4, problem=problems[0]), error("cuDNN", 2e-4, problem=problems[0])]
    assert outcome(rows, errors, "a").splitlines() == [
        "a: faster than cuDNN at 1 of 3 problems; its largest error is no larger at 1 of 1, its median at 1",
        "  1,1,9,64: 6.00 us, cuDNN 5.00 us",
        "  1,1,11,64: a did not run",
    ]


@pytest.mark.parametrize(("relative", "wrong"), [(3e-4, False), (2e-3, True), (float("nan"), True)])
def test_wrong_results_are_reported(relative: float, wrong: bool) -> None:
    found = wrong_words([error("a", 1e-4, relative)])
    assert found == ([f"  WRONG: a at {P.text}: relative error {relative:.1e}"] if wrong else [])
