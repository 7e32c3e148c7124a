"""What ``run.py explain`` derives from a block's records: steps, wavefronts, footprints and blocks."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.cli.explain import _problem
from mini_dnn.device import open_device
from mini_dnn.device.emulator.counted import CountedArray, CountedLaunch, Place
from mini_dnn.device.emulator.counted_interface import LANES, RECORD, EventKind, Space
from mini_dnn.errors import LaunchError
from mini_dnn.explain import collect
from mini_dnn.explain.blocks import Tables, encode, footprints, position
from mini_dnn.explain.collect import worth_a_look
from mini_dnn.explain.kernels import Trace
from mini_dnn.explain.page import level
from mini_dnn.explain.steps import flights, steps, wavefronts
from mini_dnn.ops.conv2d import LAYERS
from mini_dnn.profiling import emulated, workload
from mini_dnn.variant import find

SOURCE = Path(__file__).parent / "kernels" / "memory.cu"
ALL = 0xFFFFFFFF


def records(*rows: tuple[int, EventKind, Space, int]) -> np.ndarray:
    """Records of one block: warp, kind, memory, and the bytes between two lanes."""
    found = np.zeros(len(rows), RECORD)
    for record, (warp, kind, space, stride) in zip(found, rows, strict=True):
        record["warp"], record["kind"], record["space"], record["mask"] = warp, kind, space, ALL
        record["bytes"], record["offsets"] = 4, stride * np.arange(LANES)
        record["array"] = -1 if space is Space.NONE else 0
    return found


def launch_of(found: np.ndarray, shape: tuple[int, ...] = (4, 32)) -> CountedLaunch:
    return CountedLaunch(
        kernel="kernel",
        source=SOURCE,
        library=SOURCE,
        defines={},
        grid=(2, 1, 1),
        block=(64,),
        shared_bytes=0,
        static_bytes=0,
        arrays=(CountedArray("x", "global", shape, 4, 0, 16),),
        names=("",),
        places={0: Place(str(SOURCE), 3)},
        totals=np.zeros(0),
        records=found,
        records_left_out=False,
    )


LOAD = (EventKind.LOAD, Space.GLOBAL, 4)
BARRIER = (EventKind.BARRIER, Space.NONE, 0)


def test_warps_leave_a_barrier_together() -> None:
    found = steps(records((0, *LOAD), (0, *BARRIER), (0, *LOAD), (1, *LOAD), (1, *LOAD), (1, *BARRIER)))
    assert found.begin.tolist() == [0, 1, 3, 0, 1, 2]
    assert found.end.tolist() == [1, 3, 4, 1, 2, 3]
    assert found.count == 4


def test_a_conflict_takes_a_step_more() -> None:
    two_way = (EventKind.LOAD, Space.SHARED, 8)
    assert steps(records((0, *two_way), (0, *LOAD))).end.tolist() == [2, 3]


def test_a_copy_in_bulk_is_one_step() -> None:
    pieces = [(0, EventKind.COPY_LOAD, Space.GLOBAL, 4), (0, EventKind.COPY_TO, Space.SHARED, 4)] * 3
    found = records((0, EventKind.EVENT, Space.NONE, 0), *pieces, (0, *LOAD))
    found["pc"] = [1] * 7 + [2]
    found["bytes"][1:7] = 128
    assert steps(found).end.tolist() == [1] * 7 + [2]
    found["bytes"][1:7] = (
        16  # for cp.async each lane starts its own copy, and each iteration is an instruction
    )
    assert steps(found).end.tolist() == [1, 2, 2, 3, 3, 4, 4, 5]


def test_a_wait_for_an_mbarrier_ends_after_the_arrivals_of_its_phase() -> None:
    event = (EventKind.EVENT, Space.SHARED, 0)
    arrive, wait = 1, 2
    producer = [(wait, 8, 1), (0, 0, 0), (arrive, 0, 0), (wait, 8, 0), (arrive, 0, 0)]
    consumer = [(wait, 0, 0), (0, 0, 0), (0, 0, 0), (arrive, 8, 0), (wait, 0, 1)]
    found = records(*((warp, *event) for warp in (0, 1) for _ in range(5)))
    for record, (name, offset, number) in zip(found, producer + consumer, strict=True):
        record["name"], record["offsets"], record["number"] = name, offset, number
    order = steps(found, ("", "mbarrier_arrive", "mbarrier_wait"))
    assert order.end.tolist() == [1, 2, 3, 8, 9, 4, 5, 6, 7, 10]
    assert order.begin.tolist() == [0, 1, 2, 3, 8, 0, 4, 5, 6, 7]


def test_a_copy_is_on_its_way_until_its_warp_waits() -> None:
    load, wait = (EventKind.COPY_LOAD, Space.GLOBAL, 16), (EventKind.EVENT, Space.NONE, 0)
    found = records((0, *load), (0, *LOAD), (0, *wait), (0, *load), (1, *LOAD), (1, *wait))
    found["name"][[2, 5]] = 1
    assert flights(found, steps(found), ("", "cp_async_wait")) == [(0, 0, 3)]


@pytest.mark.parametrize(
    ("stride", "nbytes", "expected"),
    [
        (4, 4, (1, 1)),
        (0, 4, (1, 1)),  # a broadcast
        (8, 4, (2, 1)),
        (128, 4, (32, 1)),
        (132, 4, (1, 1)),  # a row of 33 words
        (8, 8, (2, 2)),
        (16, 16, (4, 4)),
        (32, 16, (8, 4)),
        (2, 2, (1, 1)),
    ],
)
def test_wavefronts(stride: int, nbytes: int, expected: tuple[int, int]) -> None:
    assert wavefronts(tuple(stride * lane for lane in range(LANES)), ALL, nbytes) == expected


def test_lanes_that_are_off_take_no_wavefront() -> None:
    assert wavefronts(tuple(128 * lane for lane in range(LANES)), 0b101, 4) == (2, 1)


def test_what_a_block_uses_of_an_array() -> None:
    found = records((0, *LOAD), (0, *LOAD), (1, EventKind.STORE, Space.GLOBAL, 8))
    found["offsets"][1] += 16 * 4
    reads, writes = footprints(found, launch_of(found))
    assert reads == {"array": 0, "writes": False, "runs": [0, 16, 1, 0, 16, 2, 0, 16, 1]}
    assert writes["writes"]
    assert writes["runs"][:6] == [0, 1, 1, 1, 1, 1], "every other element"
    assert len(writes["runs"]) == 3 * 32


def test_a_block_that_is_cut_keeps_the_first_steps_of_all_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.explain.blocks.LEAST_RECORDS", 1)
    found = records(*((warp, *LOAD) for warp in (0, 1) for _ in range(10)))
    launch = launch_of(found)
    tables = Tables(launch, {Place(str(SOURCE), 3): (0, 3)})
    block = encode(Trace(1, found, steps(found)), launch, tables, most=8)
    assert (block["at"], block["records"]) == ([1, 0, 0], 20)
    assert block["warp"] == [0] * 4 + [1] * 4
    assert block["step"] == [0, 1, 2, 3] * 2
    assert block["arrays"][0]["runs"] == [0, 32, 20], "of all records"
    assert tables.operations == [[0, 3, EventKind.LOAD, Space.GLOBAL, 0, 4, 0, 0]]
    assert tables.patterns == [[ALL, 4]]
    full = replace(launch, records_left_out=True)
    block = encode(Trace(1, found, steps(found)), full, tables, most=20)
    assert (len(block["op"]), block["lacks"]) == (20, True)


def test_blocks_that_are_worth_a_look() -> None:
    assert worth_a_look((1,)) == [0]
    assert worth_a_look((4, 3, 2)) == [0, 1, 4, 12, 18, 23]
    assert position(18, (4, 3, 2)) == [2, 1, 1]


def test_room_is_shared_out() -> None:
    assert level([10, 10], 100) == 10
    assert level([10, 1000, 1000], 110) == 50
    assert level([], 5) == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gemm/v10_small", "1,4096,4096"),
        ("gemm/v13_split", "512,512,512,fp32,fp32"),
        ("gemm/v16_pingpong", "6304,768,768"),
        ("attention/v11_odd_token", "1,1,577"),
        ("conv2d_padded/v4_rows", "2,64,7,12"),
        ("m1", "2,1,86"),
    ],
)
def test_the_default_problem_is_one_for_the_variants_own_kernels(name: str, text: str) -> None:
    chosen = _problem(Namespace(at=None, shapes=None, batch=None), find(name))
    assert chosen.text.startswith(text)
    assert not find(name).limit_for(_problem(Namespace(at=None, shapes=None, batch=1), find(name)))


def test_a_kernel_that_fails_is_to_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LaunchError("it failed")

    variant, problem, device = find("m1"), LAYERS["conv1"].with_batch(1), open_device("emulator")
    for module, run in (
        (collect, lambda: collect.collect(variant, problem)),
        (emulated, lambda: emulated.count(variant, problem)),
        (workload, lambda: workload.solve(variant, [(problem, {})], device)),
    ):
        monkeypatch.setattr(module, "run", fail)
        with pytest.raises(LaunchError, match=f"failed. Find .* check m1/direct --shapes {problem.text}"):
            run()
