"""Sums of tensor cores: the emulator compared with fractions, and an H200 with the emulator, bit for bit."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from emulator_kernels import Kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_core_inputs import Tiles, cores, draw
from tensor_cores import HALF, INSTRUCTIONS, Instruction, Rules, alternatives, bits_of

from mini_dnn.device import Device
from mini_dnn.device.emulator import EmulatorDevice

SOURCE = "tensor_cores.cu"
CASES = 40  # of a family, on a GPU
NAMES = [str(i) for i in INSTRUCTIONS]
Place = tuple[int, int, int]  # case, row, column


def run(device: Device, i: Instruction, tiles: Tiles) -> np.ndarray:
    """Launch once and return the bits of d."""
    a, b, c = tiles
    operands = (cores(a), cores(b.swapaxes(1, 2))) if i.in_cores else (a, b)
    d = np.zeros(c.shape, i.d)
    kernels = Kernels(device, SOURCE)  # type: ignore[arg-type]
    kernels(i.kernel, (len(c),), (128 if i.in_cores else 32,), *map(np.ascontiguousarray, operands), c, d)
    return d.view(bits_of(i.d))


@cache
def drawn(i: Instruction, cases: int) -> tuple[list[str], Tiles]:
    return draw(i, cases)


def expected(i: Instruction, tiles: Tiles, place: Place, rules: Rules | None = None) -> int:
    """The bits of one element of d according to the rules."""
    case, row, column = place
    a, b, c = tiles
    return int(i.sum(a[case, row], b[case, :, column], c[case, row, column], rules).view(bits_of(i.d)))


def shown(i: Instruction, tiles: Tiles, place: Place) -> str:
    """The operands of one element of d, in hexadecimal."""
    case, row, column = place
    a, b, c = tiles
    digits = 2 * a.itemsize
    x, y = (" ".join(f"{bits:0{digits}x}" for bits in part) for part in (a[case, row], b[case, :, column]))
    bits = c[case, row, column : column + 1].view(bits_of(i.c))[0]
    return f"      a {x}\n      b {y}\n      c {bits:0{2 * c.itemsize}x}"


@pytest.mark.parametrize("i", INSTRUCTIONS, ids=NAMES)
def test_sums_are_those_of_fractions(quick_emulator: EmulatorDevice, i: Instruction) -> None:
    names, tiles = drawn(i, 1)
    d = run(quick_emulator, i, tiles)
    rng = np.random.default_rng(3)
    for case, name in enumerate(names):
        for row, column in zip(rng.integers(0, i.m, 24), rng.integers(0, i.n, 24), strict=True):
            place = case, int(row), int(column)
            wanted = expected(i, tiles, place)
            assert d[place] == wanted, f"{name}: {d[place]:x}, not {wanted:x}, of\n{shown(i, tiles, place)}"


def patterns(bits: int, fraction_bits: int, bias: int) -> st.SearchStrategy[int]:
    """Bits of arbitrary numbers, and of numbers whose exponents often coincide."""
    exponent = st.one_of(st.integers(bias - 3, bias + 3), st.integers(0, 2 * bias + 1))
    fraction = st.one_of(st.sampled_from([0, 1, 2**fraction_bits - 1]), st.integers(0, 2**fraction_bits - 1))
    return st.builds(
        lambda sign, e, f: sign << (bits - 1) | e << fraction_bits | f, st.integers(0, 1), exponent, fraction
    )


@settings(max_examples=50)
@given(data=st.data())
@pytest.mark.parametrize("i", [x for x in INSTRUCTIONS if not x.in_cores and x.n == 8 and x.m == 16], ids=str)
def test_sums_of_any_bits(quick_emulator: EmulatorDevice, i: Instruction, data: Any) -> None:
    width = 8 * np.dtype(i.operands.bits).itemsize
    bias = i.operands.largest
    pattern = patterns(width, width - 1 - (5 if i.operands is HALF else 8), bias)
    column = st.lists(pattern, min_size=i.k, max_size=i.k)
    x, y = (np.array(data.draw(column), i.operands.bits) for _ in range(2))
    c = np.array(data.draw(patterns(32, 23, 127)), np.uint32).view(np.float32)[()]
    tiles = (
        np.ascontiguousarray(np.broadcast_to(x, (1, i.m, i.k))),
        np.ascontiguousarray(np.broadcast_to(y[:, None], (1, i.k, i.n))),
        np.full((1, i.m, i.n), c),
    )
    assert (run(quick_emulator, i, tiles) == expected(i, tiles, (0, 0, 0))).all()


def test_the_rules_by_hand() -> None:
    """Cases that were computed on paper."""
    mma, tf32, half = (INSTRUCTIONS[NAMES.index(name)] for name in ("mma_k16", "mma_tf32", "wmma_half"))

    def total(i: Instruction, a: list[float], b: list[float], c: float) -> float:
        rest = [0.0] * (i.k - len(a))
        x, y = (i.operands.encode(np.array(part + rest)) for part in (a, b))
        return float(i.sum(x, y, i.c(c)))

    assert total(mma, [1, 2], [3, 4], 5) == 16
    assert total(mma, [1, -1, 2.0**-12], [1, 1, 2.0**-13], 0) == 2.0**-25  # the last place that is kept
    assert total(mma, [1, -1, 2.0**-13], [1, 1, 2.0**-13], 0) == 0
    assert total(mma, [1, -1, -(2.0**-13)], [1, 1, 1.5 * 2.0**-12], 0) == -(2.0**-25)  # toward zero
    # A product of 3.06 counts as one of exponent 0, and not 1: one place more of the others is kept.
    assert total(mma, [1.75, -1.75, 2.0**-12], [1.75, 1.75, 2.0**-13], 0) == 2.0**-25
    # Each product is below the last place, but all together are 14
    assert total(mma, [1.75] * 16, [2.0**-16] * 16, 2.0**10) == 2.0**10
    assert total(mma, [60000] * 2, [60000] * 2, 3.4e38) == np.float32(3.4e38)
    assert total(mma, [np.inf], [1], 0) == np.inf
    assert np.isnan(total(mma, [np.inf], [0], 0))
    assert total(tf32, [2.0**70], [2.0**70], 0) == np.inf
    assert total(tf32, [2.0**70, 2.0**70], [2.0**70, -(2.0**70)], 1) == 0  # 1 is below their last place
    assert total(half, [1], [1 + 2.0**-10], 2.0**11) == 2049.0 + 1  # to nearest, ties to even
    assert total(half, [200, 200], [200, 200], 0) == np.inf


@pytest.mark.gpu
@pytest.mark.parametrize("i", INSTRUCTIONS, ids=NAMES)
def test_sums_are_those_of_hopper(cuda: Device, quick_emulator: EmulatorDevice, i: Instruction) -> None:
    if cuda.arch != 90:
        pytest.skip(f"the emulator forms sums as sm_90 does, the device is sm_{cuda.arch}")
    names, tiles = drawn(i, CASES)
    hardware, emulated = run(cuda, i, tiles), run(quick_emulator, i, tiles)
    different = places_of(np.argwhere(hardware != emulated))
    assert not different, report(i, names, tiles, hardware, emulated, different)


def places_of(found: np.ndarray) -> list[Place]:
    return [(int(case), int(row), int(column)) for case, row, column in found]


def report(
    i: Instruction,
    names: list[str],
    tiles: Tiles,
    hardware: np.ndarray,
    emulated: np.ndarray,
    different: list[Place],
) -> str:
    """Describe a difference, and the rules that the hardware follows instead."""
    families = Counter(names[case] for case, _, _ in different)
    digits, each = 2 * hardware.itemsize, CASES * i.m * i.n
    lines = [f"{i}: {len(different)} of {hardware.size} sums differ; by family, of {each}:"]
    lines += [f"  {name}: {count}" for name, count in families.most_common()]
    lines.append("The first ones of each family, in bits:")
    for name in families:
        for place in [p for p in different if names[p[0]] == name][:2]:
            bits = f"hardware {hardware[place]:0{digits}x}, emulator {emulated[place]:0{digits}x}"
            lines += [f"  {name} {place}: {bits}", shown(i, tiles, place)]
    return "\n".join([*lines, *explained(i, tiles, hardware, different)])


def explained(i: Instruction, tiles: Tiles, hardware: np.ndarray, different: list[Place]) -> list[str]:
    """The rules that come closest to the hardware, both at the differences and elsewhere."""
    rng = np.random.default_rng(5)
    some = [different[index] for index in rng.permutation(len(different))[:200]]
    others = places_of(np.stack([rng.integers(0, size, 200) for size in hardware.shape], axis=1))

    def fits(rules: Rules, places: list[Place]) -> int:
        return sum(expected(i, tiles, place, rules) == hardware[place] for place in places)

    scores = [(fits(rules, some), fits(rules, others), rules) for rules in alternatives(i)]
    best = sorted(scores, key=lambda score: -score[0] - score[1])[:8]
    return [
        f"Rules, and how many they explain of {len(some)} sums that differ, and of {len(others)} of all:",
        *(f"  {differing}, {all_}: {rules}" for differing, all_, rules in best),
    ]
