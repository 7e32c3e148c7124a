"""The emulator's counters equal those that ncu measured on an H200, or the difference is explained."""

from collections.abc import Iterator

import counters_cases
import counters_compare
import pytest

from mini_dnn.device.emulator.counted import CountedEmulator

LADDERS = [name for name, _ in counters_cases.LADDERS]
# The others are in counters_compare.py
TRIED = ("m1/direct", "softmax/v0_naive", "gemm/v1_coalesced", "m3/fusion")


@pytest.fixture(scope="module")
def device() -> Iterator[CountedEmulator]:
    found = CountedEmulator(threads=1)
    yield found
    found.close()


def check(figures: list[counters_compare.Figure], least: int) -> None:
    assert len(figures) >= least
    different = [figure for figure in figures if not figure.is_equal]
    assert [figure for figure in different if not counters_compare.reason(figure)] == []
    explained = {figure.case for figure in figures} & counters_compare.EXPLAINED.keys()
    assert explained == {figure.case for figure in different}  # equal values have no explanation


def test_small_kernels(device: CountedEmulator) -> None:
    check(counters_compare.of_probes(device), least=1500)


@pytest.mark.parametrize("name", TRIED)
def test_ladders(device: CountedEmulator, name: str) -> None:
    at = LADDERS.index(name)
    check(counters_compare.of_ladders(device, at, at + 1), least=12)


def test_a_wrong_figure_is_seen(device: CountedEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = counters_compare.measured("probes")
    rows[0]["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] += 1
    monkeypatch.setattr(counters_compare, "measured", lambda kind: rows)
    with pytest.raises(AssertionError):
        check(counters_compare.of_probes(device), least=1500)
