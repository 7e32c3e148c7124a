"""PyTorch: cuDNN's convolutions, eager modules, and torch.compile, each in several settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import torch._dynamo
from peers_common import Budget, Case, Clock, Prepared, Session
from peers_problems import NETWORK, Subject
from torch import Tensor, nn
from torch.nn import functional

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16}
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
COMPILED = "torch.compile"
MODES = ("max-autotune", "max-autotune-no-cudagraphs")  # the second one is used if the first one fails
BENCHMARK = "cudnn.benchmark"


def _fixed(weight: Tensor) -> nn.Parameter:
    """A parameter that is not trained."""
    return nn.Parameter(weight, requires_grad=False)


class Conv(nn.Module):
    """A convolution, with ReLU and max-pool if ``pool`` is given."""

    def __init__(self, weight: Tensor, pool: int) -> None:
        super().__init__()
        self.weight, self.pool = _fixed(weight), pool

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, M, P, Q), or pooled."""
        y = functional.conv2d(x, self.weight)
        if not self.pool:
            return y
        return functional.max_pool2d(functional.relu(y, inplace=True), self.pool, ceil_mode=True)


class CudnnConvRelu(Conv):
    """The same with cuDNN's fusion of convolution and ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the pooled output."""
        y = torch.cudnn_convolution_relu(x, self.weight, None, (1, 1), (0, 0), (1, 1), 1)
        return functional.max_pool2d(y, self.pool, ceil_mode=True)


class Lenet(nn.Module):
    """The whole network, from float32 images to float32 probabilities."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, value in weights.items():
            setattr(self, name.replace(".", "_"), _fixed(value))

    def forward(self, images: Tensor) -> Tensor:
        """(N, 1, 86, 86) to (N, 10)."""
        x = functional.conv2d(images.to(self.conv1_weight.dtype), self.conv1_weight)
        x = functional.max_pool2d(functional.relu(x, inplace=True), 2)
        x = functional.relu(functional.conv2d(x, self.conv2_weight), inplace=True)
        x = functional.max_pool2d(x, 4, ceil_mode=True).flatten(1)
        x = functional.relu(functional.linear(x, self.fc1_weight, self.fc1_bias), inplace=True)
        return functional.softmax(functional.linear(x, self.fc2_weight, self.fc2_bias).float(), 1)


Wrap = Callable[[nn.Module, Tensor], Callable[[Tensor], Tensor]]


def eager(module: nn.Module, x: Tensor) -> Callable[[Tensor], Tensor]:
    """The module in eager mode."""
    return module


def compiled(mode: str, module: nn.Module, x: Tensor) -> Callable[[Tensor], Tensor]:
    """The module compiled with torch.compile."""
    torch._dynamo.reset()
    if mode == MODES[0]:
        torch._dynamo.mark_static_address(x)  # otherwise, its CUDA graph would first copy the whole input
    return torch.compile(module, mode=mode, dynamic=False)  # type: ignore[return-value]


def versions() -> dict[str, Any]:
    """The versions of PyTorch and of what it calls."""
    found: dict[str, Any] = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    with suppress(PackageNotFoundError):
        found["triton"] = version("triton")
    return found


@dataclass(frozen=True)
class Way:
    """How a subject is computed."""

    precision: str
    order: str
    kind: type[Conv] = Conv  # for layers
    wrap: Wrap = eager
    where: str = "cuda"


def eager_cases(subjects: Sequence[Subject], where: str = "cuda") -> Iterator[Case]:
    """Yield every precision and order of axes. For ReLU and pooling, also cuDNN's fusion."""
    for subject, precision, order in itertools.product(subjects, DTYPES, FORMATS):
        way = Way(precision, order, where=where)
        if subject.what.startswith("conv"):
            yield _case(subject, "cuDNN", BENCHMARK, way)
            continue
        yield _case(subject, "PyTorch eager", f"{BENCHMARK}, ReLU in place", way)
        if subject.what.startswith("fused"):
            setting = f"{BENCHMARK}, cudnn_convolution_relu, max_pool2d"
            yield _case(subject, "PyTorch eager", setting, replace(way, kind=CudnnConvRelu))


def run_compiled(
    session: Session, subjects: Sequence[Subject], clock: Clock, budget: Budget, where: str = "cuda"
) -> None:
    """Measure torch.compile for each subject in the best order of axes without it; for the network in both.

    The network comes first and its second order last, because the budget may end before all are compiled.
    """
    network = [subject for subject in subjects if subject.operation.name == NETWORK]
    fused = [subject for subject in subjects if subject.what.startswith("fused")]
    alone = [subject for subject in subjects if subject.what.startswith("conv")]
    jobs = [(subject, precision, 0) for subject in network + fused + alone for precision in DTYPES]
    jobs += [(subject, precision, 1) for subject in network for precision in DTYPES]
    for subject, precision, rank in jobs:
        order = orders(session.rows, subject.what, precision)[rank]
        for mode in MODES:
            way = Way(precision, order, wrap=partial(compiled, mode), where=where)
            case = _case(subject, COMPILED, f'mode="{mode}"', way)
            if session.attempt(case, clock, budget) or budget.spent:
                break


def orders(rows: Sequence[Mapping[str, Any]], what: str, precision: str) -> list[str]:
    """Orders of axes, fastest first by eager times. Without times, they are in the order of `FORMATS`."""
    times = dict.fromkeys(FORMATS, float("inf"))
    for row in rows:
        if (row["kind"], row["what"], row["precision"]) == ("library", what, precision):
            times[row["order"]] = min(times[row["order"]], row["op_ms"])
    return sorted(FORMATS, key=times.__getitem__)


def _case(subject: Subject, peer: str, setting: str, way: Way) -> Case:
    bytes_ = subject.problem.min_bytes
    in_half = way.precision == "fp16"
    if subject.operation.name == NETWORK:
        setting += ", images converted from fp32" if in_half else ""
    else:
        bytes_ = bytes_ * DTYPES[way.precision].itemsize // 4
        setting += ", fp16 in memory" if in_half else ""
    return Case(
        kind="library",
        peer=peer,
        what=subject.what,
        precision=way.precision,
        order=way.order,
        setting=setting,
        bytes=bytes_,
        prepare=lambda: _prepared(subject, way),
        check=lambda found: subject.check_library(found, way.precision),
        facts=subject.facts,
    )


def use(precision: str) -> None:
    """Allow TF32 in cuDNN and cuBLAS, or not, and let cuDNN benchmark its algorithms."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


@contextmanager
def _prepared(subject: Subject, way: Way) -> Iterator[Prepared]:
    use(way.precision)
    module, x = on_device(subject, way)
    fetched = torch.from_numpy(subject.fetched).to(way.where)
    held: dict[str, Any] = {"run": way.wrap(module, x), "x": x}
    del module, x  # `held` alone keeps their memory

    def op() -> None:
        held.pop("y", None)  # its memory is needed again
        held["y"] = held["run"](held["x"])

    try:
        with torch.no_grad():
            yield Prepared(op, lambda: held["y"][fetched].double().cpu().numpy())
    finally:
        held.clear()
        if way.where == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def on_device(subject: Subject, way: Way) -> tuple[nn.Module, Tensor]:
    """The module of a subject, and its input."""
    dtype, memory = DTYPES[way.precision], FORMATS[way.order]

    def tensor(array: Any, dtype: torch.dtype) -> Tensor:
        found = torch.from_numpy(array).to(way.where)
        # not contiguous(): with one channel both orders are contiguous, and only to() changes the strides
        return found.to(dtype=dtype, memory_format=memory) if array.ndim == 4 else found.to(dtype)

    if subject.operation.name == NETWORK:
        weights = {name: tensor(subject.arrays[name], dtype) for name in subject.problem.named("weight")}
        return Lenet(weights), tensor(subject.input, torch.float32)
    pool = getattr(subject.problem, "pool", 0)
    return way.kind(tensor(subject.arrays["w"], dtype), pool), tensor(subject.input, dtype)
