"""``bench`` for single operations: rows with a stand-in clock, skipped problems, and command lines."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from clocked import Clocked, Restless

from mini_dnn import ops
from mini_dnn.cli import bench as verb
from mini_dnn.cli import main
from mini_dnn.device.code_hash import code_hash
from mini_dnn.errors import CheckError, DeviceError
from mini_dnn.measuring import bench, ceilings
from mini_dnn.measuring.bench import CHECKED, Bench
from mini_dnn.measuring.files import bench_file, read_json, write
from mini_dnn.measuring.measure import UNSETTLED, Setting, measure
from mini_dnn.measuring.records import Row, Skipped
from mini_dnn.running.timing import Timing
from mini_dnn.variant import find

TIMING = Timing(warm_up=0, repeats=6, max_repeats=6)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocked]:
    monkeypatch.setattr(bench, "ceilings", lambda device: {"copy_gbps": 4000.0})
    clocked = Clocked()
    yield clocked
    clocked.close()


@pytest.mark.parametrize(
    ("op", "impl", "name", "launches"),
    [
        ("conv2d_relu_pool", "layers/fused", "conv2", 2),
        ("lenet", "networks/lenet/whole", "uint8-28", 2),
        ("conv2d", "m2", "conv1", 3),
    ],
)
def test_a_row_of_any_operation(
    op: str, impl: str, name: str, launches: int, device: Clocked, tmp_path: Path
) -> None:
    problem = ops.find(op).course[name].with_batch(3)
    seen: list[Row | Skipped] = []
    run = Bench(Setting(device, TIMING, CHECKED), on_row=seen.append)
    run.run([find(impl)], name, problem)
    (row,) = run.record.rows
    assert seen == [row]
    assert (row.op, row.problem, row.shape, row.batch) == (op, name, problem.fields, 3)
    assert (row.flops, row.min_bytes) == (problem.flops, problem.min_bytes)
    assert (row.op_ms, row.repeats, row.settled) == (launches, 6, True)
    assert (row.op_ms_min, row.op_ms_max, row.median_error) == (launches, launches, 0)
    assert row.code_hash == code_hash(find(impl).source)
    assert row.max_error > 0
    assert row.error_of_bound is not None
    assert row.error_of_bound < 1
    assert (row.state, row.host, row.accuracy, row.streams) == (None, None, None, None)
    assert device.flushes == 6
    file = tmp_path / "results.json"
    write(run.record, file)
    assert bench_file(read_json(file), file) == run.record


def test_all_variants_of_an_operation_get_the_same_inputs(device: Clocked) -> None:
    variants = [find(name) for name in ("networks/lenet/whole", "networks/lenet/fused_pool")]
    run = Bench(Setting(device, TIMING, CHECKED))
    for name, problem in ops.find("lenet").course.items():
        run.run(variants, name, problem.with_batch(2))
    found = [(row.problem, row.variant) for row in run.record.rows]
    expected = [(name, v.name) for name in ("float32", "uint8", "uint8-28") for v in variants]
    assert found == expected[:-1]
    (skipped,) = run.record.skipped
    assert (skipped.variant, skipped.problem) == (variants[1].name, "uint8-28")
    assert "resized by lenet/whole only" in skipped.reason


def test_a_wrong_result_gets_no_row(device: Clocked, tmp_path: Path) -> None:
    source = find("m1").folder
    (tmp_path / "variant.py").write_text((source / "variant.py").read_text())
    (tmp_path / "kernel.cu").write_text((source / "kernel.cu").read_text().replace("] = acc;", "] = -acc;"))
    run = Bench(Setting(device, TIMING, CHECKED))
    with pytest.raises(CheckError, match=r"conv1: \d+ of \d+ elements differ from float64"):
        run.run([find("m1"), find(tmp_path)], "conv1", ops.find("conv2d").course["conv1"].with_batch(1))
    assert [row.variant for row in run.record.rows] == ["m1/direct"]


@pytest.mark.parametrize("most", [2, None])
def test_a_sweep_times_every_pair(most: int | None, device: Clocked) -> None:
    variant = find("m3/sweep")
    assert variant.sweep is not None
    values = {"x_values": variant.sweep.x_values[:most], "y_values": variant.sweep.y_values[:most]}
    variant = replace(variant, sweep=replace(variant.sweep, **values))
    run = Bench(Setting(device, TIMING, CHECKED))
    run.sweep(variant, "conv1", ops.find("conv2d").course["conv1"].with_batch(1))
    run.sweep(find("m1"), "conv1", ops.find("conv2d").course["conv1"].with_batch(1))
    (sweep,) = run.record.sweeps
    assert (sweep.op, sweep.problem, sweep.variant, sweep.best) == (
        *("conv2d", "conv1", "m3/sweep"),
        variant.sweep.best,
    )
    assert [len(line) for line in sweep.op_ms] == [len(variant.sweep.x_values)] * len(variant.sweep.y_values)


def test_op_times_that_do_not_settle_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mini_dnn.running.timing.WARM_UP_S", 0.0)
    monkeypatch.setattr(bench, "ceilings", lambda device: {})
    monkeypatch.setattr(verb, "open_device", lambda name: Restless())
    file = tmp_path / "results.json"
    words = ["bench", "--impl", "layers/fused", "--shapes", "1,1,9,9,1,3,3,2", "--budget", "0.01"]
    assert main([*words, "--out", str(file)]) == 0
    assert UNSETTLED in capsys.readouterr().out
    (row,) = bench_file(read_json(file), file).rows
    assert row.settled is False
    problem = ops.find("conv2d").check[0]
    timing = Timing(warm_up=1, repeats=1, max_repeats=1)
    arrays = ops.find("conv2d").inputs(problem, 0)
    assert not measure(find("m1"), "one", problem, arrays, Setting(Restless(), timing)).result.timed.settled


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["softmax", "--shapes", "3,5", "2,40"], [("v0_naive", "3,5", 3), ("v1_warp", "3,5", 3)]),
        (
            ["softmax", "--at", "tokens", "--batch", "1,2"],
            [("v0_naive", "tokens", 1), ("v1_warp", "tokens", 1)],
        ),
    ],
)
def test_an_operation_on_the_command_line(
    words: list[str], expected: list[tuple[str, str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    assert main(["bench", *words, "--device", "emulator", "--out", str(file)]) == 0
    record = bench_file(read_json(file), file)
    rows = [(row.variant.removeprefix("softmax/"), row.problem, row.batch) for row in record.rows]
    assert rows[:2] == expected
    assert len(rows) == 4
    assert (record.schema, record.data) == (4, "random")
    assert len(re.findall(r"^softmax/v\d_\w+ +\d+  \S+ +none", capsys.readouterr().out, re.M)) == 4


@pytest.mark.exhaustive
def test_variants_of_several_operations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The network's layers are measured in the network; other operations at their own problems."""
    file = tmp_path / "results.json"
    words = ["bench", "--impl", "m1", "networks/lenet/fused_pool", "layers/fused", "--batch", "2"]
    assert (
        main([*words, "--budget", "0.01", "--device", "emulator", "--data", "synthetic", "--out", str(file)])
        == 0
    )
    rows = bench_file(read_json(file), file).rows
    assert [(row.op, row.variant, row.problem, row.accuracy is None) for row in rows] == [
        ("conv2d", "m1/direct", "conv1", False),
        ("conv2d", "m1/direct", "conv2", False),
        ("lenet", "networks/lenet/fused_pool", "float32", True),
        ("lenet", "networks/lenet/fused_pool", "uint8", True),
        ("conv2d_relu_pool", "layers/fused", "conv1", True),
        ("conv2d_relu_pool", "layers/fused", "conv2", True),
    ]
    printed = capsys.readouterr().out
    assert re.search(r"^networks/lenet/fused_pool uint8-28: skipped, .* lenet/whole only$", printed, re.M)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["conv3d"], "conv3d is neither an operation (did you mean 'conv2d'?) nor a variant"),
        (["softmax", "--impl", "m1"], "--impl m1/direct: it computes conv2d, but softmax is needed here"),
        (["--impl", "m1", "layers/fused", "--at", "conv1"], "layers/fused: it computes conv2d_relu_pool"),
        (["softmax", "--at", "conv1"], "--at conv1: softmax has no such problem"),
        (["softmax", "--shapes", "3"], "found 1 values; expected 2: N,L"),
        (
            ["softmax", "--shapes", "3,5", "--batch", "3"],
            "--shapes already contains the sizes of the batches",
        ),
        (["softmax", "--shapes", "3,5", "--at", "tokens"], "use only one of them"),
        (["--impl", "m3/cublas"], "m3/cublas needs a GPU: "),
    ],
)
def test_wrong_use(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words, "--device", "emulator"]) == 2
    assert message in capsys.readouterr().err


def test_of_all_variants_those_that_cannot_run_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "names", lambda op: ["m3/cublas", "m1/direct"])
    monkeypatch.setattr(verb, "mine", lambda op: [])
    assert main(["bench", "--shapes", "1,1,5,4,2,3,3", "--device", "emulator"]) == 0
    printed = capsys.readouterr().out
    assert "\nleft out  m3/cublas needs a GPU: " in printed
    assert re.findall(r"^(m\d/\w+) +1 ", printed, re.M) == ["m1/direct"]


def test_bench_without_a_gpu_names_what_needs_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks(_: str) -> Clocked:
        raise DeviceError("there is no driver")

    monkeypatch.setattr(verb, "open_device", lacks)
    assert main(["bench", "softmax"]) == 2
    assert "bench measures on a GPU: there is no driver. Without a GPU, 'run.py profile' estimates" in (
        capsys.readouterr().err
    )


def test_rows_are_handed_on_as_they_come(device: Clocked) -> None:
    kinds: list[type] = []
    run = Bench(Setting(device, TIMING, CHECKED), on_row=lambda row: kinds.append(type(row)))
    problem = ops.find("lenet").course["uint8-28"].with_batch(1)
    run.run([find("networks/lenet/fused_pool"), find("networks/lenet/whole")], "uint8-28", problem)
    assert kinds == [Skipped, Row]


def test_the_records_fields_are_in_the_file(device: Clocked, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write(Bench(Setting(device, TIMING, CHECKED)).record, file)
    content = json.loads(file.read_text())
    assert content["schema"] == 4
    assert content["memory"] == {"copy_gbps": 4000.0}
    assert content["method"]["cold_cache"] is True
    assert (content["rows"], content["skipped"], content["sweeps"]) == ([], [], [])


class Ticking(Clocked):
    """A device with little free memory, on whose clock each record takes a millisecond."""

    def record(self, stream: int = 0) -> float:
        self.now_ms += 1.0
        return self.now_ms

    def free_bytes(self) -> int:
        return 4 * 4 * 1000


@pytest.mark.parametrize(("least", "items"), [(100, 1000), (1500, 1500)])
def test_copies_are_timed_in_half_of_the_free_memory(
    least: int, items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "HOST_ITEMS", least)
    device = Ticking()
    rates = ceilings.copy_rates(device)
    device.close()
    assert rates["copy_gbps"] == pytest.approx(2 * 4 * items / 1e6)
    assert rates["h2d_gbps"] == rates["d2h_gbps"] == pytest.approx(4 * least / 1e6)
