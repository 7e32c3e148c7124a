"""The benchmark of calls from Python: its measurements and its output."""

import itertools
import json
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import calls
import pytest
from calls import BARE, Figure, host_us, table, too_slow

from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import find

FIGURES = [
    Figure("CuPy", BARE, 2.0, 0.1, False),
    Figure("CuPy", "gemm(a, b)", 8.5, 0.2, True),
    Figure("CuPy", "cupy.matmul(a, b, out=c)", 30.0, 1.0, False),
    Figure("PyTorch", BARE, 3.0, 0.1, False),
    Figure("PyTorch", "gemm(a, b)", 13.5, 0.2, True),
]


def test_the_host_waits_between_bursts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in clock advances by 3 us with each call, and by much more with each wait."""
    now = [0.0]
    ticks = itertools.cycle([2e-6, 3e-6, 4e-6])
    monkeypatch.setattr(calls.time, "perf_counter", lambda: now[0])

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    middle, spread = host_us(lambda: pass_time(next(ticks)), lambda: pass_time(1.0), bursts=9)
    assert middle == pytest.approx(3, rel=0.01)
    assert spread < 0.1


def test_what_is_said() -> None:
    lines = table(FIGURES).splitlines()
    assert lines[1].split() == ["CuPy", "bare", "launch", "2.00", "0.10"]
    assert lines[2].split()[-1] == "6.50"
    assert too_slow(FIGURES) == ["gemm(a, b) of PyTorch: 10.50 us above a bare launch; at most 10"]


@pytest.mark.parametrize(("limit", "status"), [(20.0, 0), (1.0, 1)])
def test_the_exit_status(limit: float, status: int, monkeypatch: Any, tmp_path: Any, capsys: Any) -> None:
    monkeypatch.setattr(calls, "measured", lambda *asked: FIGURES)
    monkeypatch.setattr(calls, "versions_of", lambda libraries: dict.fromkeys(libraries, "1.0"))
    monkeypatch.setattr(calls, "device_name", lambda: "a GPU")
    monkeypatch.setattr(too_slow, "__defaults__", (limit,))
    assert calls.main(["--out", str(tmp_path / "calls.json")]) == status
    assert "bare launch" in capsys.readouterr().out
    found = json.loads((tmp_path / "calls.json").read_text())
    assert found["rows"][-1]["us"] == 13.5
    assert (found["device"], found["versions"]["PyTorch"], found["size"]) == ("a GPU", "1.0", 256)
    assert found["commit"].keys() == {"commit", "dirty"}


def test_cupys_own_launch_has_the_arrays_of_a_product_that_another_variant_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By default, 256 x 256 x 256 is a call of a call of gemm/v10_small."""
    problem = GemmShape(256, 256, 256, "fp16", "fp32")
    launches: list[tuple[Any, ...]] = []
    loaded = Mock(planned=find("gemm/v14").planned(problem, 227 * 1024))
    loaded.kernel = lambda step: lambda grid, block, args, shared_mem: launches.append(args)
    monkeypatch.setattr(calls, "prepared", lambda: SimpleNamespace(variant=None, problem=problem))
    front_end = SimpleNamespace(load=lambda variant, problem: loaded)
    monkeypatch.setitem(sys.modules, "mini_dnn.interop.cupy", front_end)
    own = {what: call for what, call, _ in calls.raw_kernel("a", "b", "c")}["RawKernel"]
    own()
    assert launches[0][:3] == ("a", "b", "c")
