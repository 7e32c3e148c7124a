"""Check a variant: its kernels on the checked emulator, or on a GPU, and its results against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.checking.launches import check_launches, shared_limit, static_finding
from mini_dnn.checking.schedules import SCHEDULES, all_schedules, same_mistake
from mini_dnn.device.emulator.checked import STEP_LIMIT, CheckedEmulator, KernelError
from mini_dnn.device.emulator.explain import Finding, Party
from mini_dnn.device.emulator.symbols import static_shared_bytes
from mini_dnn.errors import LaunchError, ShapeError, SharedMemoryError
from mini_dnn.ops.compare import check_conv2d
from mini_dnn.ops.hints import hint, tail
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.running.runner import check_runnable, fitting, run
from mini_dnn.variant import Variant

# Sizes that no tile divides, unequal sides, one of everything: aligned and square shapes hide mistakes.
SHAPES = (
    ConvShape(1, 1, 1, 1, 1, 1, 1),
    ConvShape(2, 3, 5, 4, 2, 5, 4),
    ConvShape(2, 2, 9, 21, 3, 2, 5),
    ConvShape(1, 2, 21, 10, 9, 7, 2),
    ConvShape(3, 3, 19, 37, 17, 3, 5),
    ConvShape(1, 35, 6, 7, 20, 1, 1),
)
UNWRITTEN = 0xFFFFFFFF  # what a fresh buffer holds

Progress = Callable[[int], None]  # shapes done so far


@dataclass(frozen=True)
class Result:
    """One shape: clean if there is neither a finding nor a reason why it was not run."""

    shape: ConvShape
    finding: Finding | None = None
    refused: str = ""
    more: tuple[Finding, ...] = ()  # a GPU goes on after the first; other orders show other mistakes


@dataclass(frozen=True)
class Report:
    """What a check gave."""

    variant: str
    seed: int
    results: tuple[Result, ...]
    device: str  # its description
    arch: int  # compute capability times ten

    @property
    def findings(self) -> dict[Finding, list[ConvShape]]:
        """Each distinct finding once, with the shapes at which it was met; the first one's words."""
        found: dict[Finding, list[ConvShape]] = {}
        for result in self.results:
            for finding in filter(None, (result.finding, *result.more)):
                known = next((f for f in found if same_mistake(f, finding)), finding)
                found.setdefault(known, []).append(result.shape)
        return found

    def as_dict(self) -> dict[str, Any]:
        """The verdict for a file of JSON; programs may rely on these fields, and others may be added.

        ``variant``, ``device``, ``arch``, ``seed``, and ``clean``: nothing was found.
        ``shapes``, one for each that was asked for: ``N C H W M R S``; ``clean``; ``refused``, the limit
        that kept the variant from being run at it, or empty.
        ``findings``, each distinct one once: ``kind`` (out-of-bounds, race, divergence, uninitialised,
        misaligned, fault, launch, unwritten, wrong ...); ``what``, ``cure`` and ``notes`` in words;
        ``kernel``; ``array`` with its index; ``shapes`` at which it was met; ``own`` and ``other``, the
        two sides, or null: ``place`` with ``file``, ``line`` and ``code``, or null; ``block`` and ``thread``
        (empty where unknown); ``does`` (reads, writes, updates).
        """
        return {
            "variant": self.variant,
            "device": self.device,
            "arch": self.arch,
            "seed": self.seed,
            "clean": not self.findings,
            "shapes": [
                {**vars(r.shape), "clean": r.finding is None and not r.refused, "refused": r.refused}
                for r in self.results
            ],
            "findings": [
                {
                    "kind": f.kind,
                    "what": f.what,
                    "kernel": f.kernel,
                    "array": f.array,
                    "own": _party(f.own),
                    "other": _party(f.other),
                    "cure": f.cure,
                    "notes": f.notes,
                    "shapes": [vars(s) for s in shapes],
                }
                for f, shapes in self.findings.items()
            ],
        }


def _party(party: Party | None) -> dict[str, Any] | None:
    if party is None:
        return None
    place = vars(party.place) if party.place else None
    return {"place": place, "block": party.block, "thread": party.thread, "does": party.does}


def check(
    variant: Variant,
    shapes: Sequence[ConvShape] = SHAPES,
    seed: int = 0,
    progress: Progress | None = None,
    arch: int = CheckedEmulator.arch,
    schedules: Sequence[str] = SCHEDULES,
    limit: int = STEP_LIMIT,
) -> Report:
    """Run a variant on the checked emulator at each shape, in each order, up to the first finding there.

    Parameters
    ----------
    seed
        Of the inputs and of the random order.
    schedules
        Orders of blocks and threads, of `SCHEDULES`.
    arch
        The compute capability, times ten, whose limits launches are held to: see `check_launches`.
    limit
        How many accesses of memory and arrivals at barriers a block may make before it counts as endless.

    Raises
    ------
    VariantError, DeviceError
        The kernel does not compile, or the variant cannot run on the emulator at all.
    """
    device = CheckedEmulator(limit)
    device.arch, device.max_shared_bytes = arch, shared_limit(arch)
    try:
        _build(variant, shapes, device)
        results: list[Result] = []
        for shape in shapes:
            if any(result.finding and result.finding.kind == "endless" for result in results):
                results.append(
                    Result(shape, refused="the endless loop that was found would take its time again")
                )
            else:
                results.append(_check_orders(variant, shape, device, seed, schedules))
            if progress:
                progress(len(results))
    finally:
        device.close()
    return Report(variant.name, seed, tuple(results), device.description, arch)


def _build(variant: Variant, shapes: Sequence[ConvShape], device: CheckedEmulator) -> None:
    """Compile for all shapes at once: one after the other takes most of a check's time."""
    check_runnable(variant, device)
    taken = [shape for shape in shapes if not variant.limit_for(shape)]
    device.build(
        variant.source,
        [fitting(variant, shape, device.max_shared_bytes).defines_for(shape) for shape in taken],
    )


def _check_orders(
    variant: Variant, shape: ConvShape, device: CheckedEmulator, seed: int, schedules: Sequence[str]
) -> Result:
    refused = variant.limit_for(shape)
    if refused:
        return Result(shape, refused=refused)
    variant = fitting(variant, shape, device.max_shared_bytes)
    launch = _launch(variant, shape, device)
    if launch:
        return Result(shape, launch)

    def in_order(schedule: str) -> Finding | None:
        device.set_schedule(SCHEDULES.index(schedule), seed)
        return _check_shape(variant, shape, device, seed)

    found = all_schedules(in_order, schedules)
    return Result(shape, found[0] if found else None, more=tuple(found[1:]))


def _check_shape(variant: Variant, shape: ConvShape, device: CheckedEmulator, seed: int) -> Finding | None:
    x, w = inputs(shape, seed)
    try:
        y = run(x, w, variant, device).y
    except KernelError as error:
        return error.finding
    except LaunchError as error:
        cure = "compare the launch in variant.py with the kernel's parameters and with CUDA's limits"
        return Finding("launch", str(error), cure=cure)
    return compare(x, w, y, variant)


def _launch(variant: Variant, shape: ConvShape, device: CheckedEmulator) -> Finding | None:
    """What is wrong before any thread has run."""
    check_runnable(variant, device)
    try:
        module = device.compile(variant.source, variant.defines_for(shape))
    except SharedMemoryError as error:
        return static_finding(variant, error)
    return check_launches(
        variant, shape, device.arch, lambda kernel: static_shared_bytes(module.path, kernel)
    )


def inputs(shape: ConvShape, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images ``(N, C, H, W) float32`` and filters ``(M, C, R, S) float32``.

    Raises
    ------
    ShapeError
        They do not fit the memory.
    """
    rng = np.random.default_rng(seed)
    try:
        return rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)
    except (MemoryError, ValueError) as error:  # ValueError: more than any array may have
        raise ShapeError(f"{shape} does not fit this machine's memory; take smaller sizes") from error


def compare(x: np.ndarray, w: np.ndarray, y: np.ndarray, variant: Variant) -> Finding | None:
    """What is wrong with a result ``y (N, M, P, Q) float32``, if anything."""
    return _unwritten(y) or _wrong(x, w, y, variant)


def _unwritten(y: np.ndarray) -> Finding | None:
    missing = y.view(np.uint32) == UNWRITTEN
    if not missing.any():
        return None
    first = _index(np.unravel_index(int(np.argmax(missing)), y.shape))
    what = (
        f"{missing.sum()} of {y.size} elements of y {y.shape} were written by no thread; the first is {first}"
    )
    where = tail(missing)
    cure = (
        "the grid must cover the ragged tail: ceil_div(size, tile) blocks, and a bounds check in the kernel"
    )
    return Finding("unwritten", what, array=first, cure=cure, notes=(where,) if where else ())


def _wrong(x: np.ndarray, w: np.ndarray, y: np.ndarray, variant: Variant) -> Finding | None:
    result = check_conv2d(x, w, y, variant.precision)
    if result.first is None:
        return None
    first = _index(result.first)
    what = (
        f"{result.differing} of {result.elements} elements of y {y.shape} differ from float64; the first is "
        f"{first}: found {result.found:.6g}, expected {result.expected:.6g}"
    )
    guess = hint(x, w, y, variant.precision)
    cure = "compare the indices of each load and of the store with y[n,m,p,q] = sum x[n,c,p+r,q+s] w[m,c,r,s]"
    return Finding("wrong", what, array=first, cure=cure, notes=(guess,) if guess else ())


def _index(at: Sequence[Any]) -> str:
    return f"y[{', '.join(f'{name}={int(i)}' for name, i in zip('nmpq', at, strict=True))}]"
