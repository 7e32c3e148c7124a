"""Tensors on the GPU, the comparison and the clock of a kernel that PyTorch launches."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from values import ANSWER, values

WARM_UP, RUNS, FLUSHES = 5, 50, 16


def draw(
    sequence: int, shape: tuple[int, ...], dtype: torch.dtype, low: float, high: float, gap: int = 0
) -> torch.Tensor:
    """Generate an input, see `values`. The last ``gap`` elements of each line are unused and are NaN."""
    drawn = values(sequence, shape, low, high)
    if gap:
        drawn[..., shape[-1] - gap :] = np.nan
    return torch.from_numpy(drawn).to(dtype).cuda()


def fresh(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor whose bytes are 0xFF, which is NaN, so that unwritten elements are found."""
    line = torch.empty(0, dtype=dtype).element_size() * shape[-1]
    return torch.full((*shape[:-1], line), 0xFF, dtype=torch.uint8, device="cuda").view(dtype)


def agrees(name: str, found: torch.Tensor, gap: int = 0) -> bool:
    """Compare some elements of an output with float64, and look for NaN in all elements."""
    answers = _answers(name)
    at, expected, bound = (torch.from_numpy(answers[part].astype(kind)).cuda() for part, kind in PARTS)
    wrong = int((~((found.view(-1)[at].double() - expected).abs() <= bound)).sum())  # NaN is wrong
    width = found.shape[-1] - gap
    missing = int(found[..., :width].isnan().sum())
    strays = int((~found[..., width:].isnan()).sum())
    stray = f"; {strays:,} were written into gaps" if gap else ""
    compared = f"{name}: {len(answers):,} elements compared with float64"
    print(f"{compared}, {wrong:,} wrong; {missing:,} are NaN{stray}")
    return not wrong and not missing and not strays and len(answers) > 0


def agrees_with_torch(name: str, found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Compare all elements of a part of an output with those that PyTorch computes in float64.

    No element may differ by more than the largest bound of the answers.
    """
    bound = float(_answers(name)["bound"].max())
    error = float((found.double() - expected).abs().max())
    compared = f"{name}: {found.numel():,} elements compared with PyTorch in float64"
    print(f"{compared}, max error {error:.2e} of {bound:.2e}")
    return error <= bound  # false for NaN


def time(steps: Callable[[], None], flops: float, moved: float) -> None:
    """Print the median of 50 runs. The L2 cache is overwritten before each of them."""
    flush = torch.empty(
        2 * torch.cuda.get_device_properties().L2_cache_size, dtype=torch.uint8, device="cuda"
    )
    times = []
    for run in range(WARM_UP + RUNS):
        for _ in range(FLUSHES):  # this takes longer than the host needs to queue the launches
            flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        steps()
        end.record()
        end.synchronize()
        if run >= WARM_UP:
            times.append(start.elapsed_time(end) * 1e-3)
    seconds = float(np.median(times))
    print(f"{seconds * 1e3:.4g} ms, {flops / seconds / 1e12:.2f} TFLOP/s, {moved / seconds / 1e9:.0f} GB/s")


PARTS = (("at", np.int64), ("expected", np.float64), ("bound", np.float64))


def _answers(name: str) -> np.ndarray:
    return np.fromfile(Path(__file__).with_name(f"expected-{name}.bin"), ANSWER)
