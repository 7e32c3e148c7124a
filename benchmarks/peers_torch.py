"""PyTorch: cuDNN's convolutions, eager modules, and torch.compile, each in several settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import torch._dynamo
from peers_common import Budget, Case, Clock, Prepared, Session
from peers_problems import Classification, Convolution, Problem
from torch import Tensor, nn
from torch.nn import functional

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16}
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
COMPILED = "torch.compile"
MODES = ("max-autotune", "max-autotune-no-cudagraphs")  # the second where the first fails
BENCHMARK = "cudnn.benchmark"


def _fixed(weight: Tensor) -> nn.Parameter:
    """A parameter that is not trained."""
    return nn.Parameter(weight, requires_grad=False)


class Conv(nn.Module):
    """A convolution; with a pool also ReLU and max-pool."""

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
    """The same with cuDNN's own fusion of convolution and ReLU."""

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
    """The module as it is."""
    return module


def compiled(mode: str, module: nn.Module, x: Tensor) -> Callable[[Tensor], Tensor]:
    """The module through torch.compile."""
    torch._dynamo.reset()
    if mode == MODES[0]:
        torch._dynamo.mark_static_address(x)  # else its CUDA graph would copy the whole input first
    return torch.compile(module, mode=mode, dynamic=False)  # type: ignore[return-value]


def versions() -> dict[str, Any]:
    """Of PyTorch and what it calls."""
    found: dict[str, Any] = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    with suppress(PackageNotFoundError):
        found["triton"] = version("triton")
    return found


def eager_cases(problems: Sequence[Problem], where: str = "cuda") -> Iterator[Case]:
    """Every precision and order of axes; of ReLU and pool also cuDNN's own fusion."""
    for problem, precision, order in itertools.product(problems, DTYPES, FORMATS):
        if problem.what.startswith("conv"):
            yield _case(problem, "cuDNN", precision, order, BENCHMARK, Conv, eager, where)
            continue
        setting = f"{BENCHMARK}, ReLU in place"
        yield _case(problem, "PyTorch eager", precision, order, setting, Conv, eager, where)
        if problem.what.startswith("fused"):
            setting = f"{BENCHMARK}, cudnn_convolution_relu, max_pool2d"
            yield _case(problem, "PyTorch eager", precision, order, setting, CudnnConvRelu, eager, where)


def run_compiled(
    session: Session, problems: Sequence[Problem], clock: Clock, budget: Budget, where: str = "cuda"
) -> None:
    """torch.compile of each problem in the order of axes that is best without it; of the network in both.

    The network first and its second order last, as the budget may end before all are compiled.
    """
    network = [problem for problem in problems if isinstance(problem, Classification)]
    fused = [problem for problem in problems if problem.what.startswith("fused")]
    alone = [problem for problem in problems if problem.what.startswith("conv")]
    jobs = [(problem, precision, 0) for problem in network + fused + alone for precision in DTYPES]
    jobs += [(problem, precision, 1) for problem in network for precision in DTYPES]
    for problem, precision, rank in jobs:
        order = orders(session.rows, problem.what, precision)[rank]
        for mode in MODES:
            setting = f'mode="{mode}"'
            case = _case(problem, COMPILED, precision, order, setting, Conv, partial(compiled, mode), where)
            if session.attempt(case, clock, budget) or budget.spent:
                break


def orders(rows: Sequence[Mapping[str, Any]], what: str, precision: str) -> list[str]:
    """Orders of axes by the eager times of these, the fastest first; as in `FORMATS` where there are none."""
    times = dict.fromkeys(FORMATS, float("inf"))
    for row in rows:
        if (row["kind"], row["what"], row["precision"]) == ("library", what, precision):
            times[row["order"]] = min(times[row["order"]], row["op_ms"])
    return sorted(FORMATS, key=times.__getitem__)


def _case(
    problem: Problem,
    peer: str,
    precision: str,
    order: str,
    setting: str,
    kind: type[Conv],
    wrap: Wrap,
    where: str,
) -> Case:
    if isinstance(problem, Classification):
        bytes_ = problem.shape.min_bytes
        setting += ", images converted from fp32" if precision == "fp16" else ""
    else:
        bytes_ = problem.shape.min_bytes * DTYPES[precision].itemsize // 4
        setting += ", fp16 in memory" if precision == "fp16" else ""
    return Case(
        kind="library",
        peer=peer,
        what=problem.what,
        precision=precision,
        order=order,
        setting=setting,
        bytes=bytes_,
        prepare=lambda: _prepared(problem, precision, order, kind, wrap, where),
        check=lambda found: problem.check(found, precision),
        facts={"batch": problem.shape.N},
    )


def use(precision: str) -> None:
    """Let cuDNN and cuBLAS take TF32, or not; and let cuDNN try its algorithms."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


@contextmanager
def _prepared(
    problem: Problem, precision: str, order: str, kind: type[Conv], wrap: Wrap, where: str
) -> Iterator[Prepared]:
    use(precision)
    module, x = on_device(problem, precision, order, kind, where)
    compared = torch.from_numpy(problem.compared).to(where)
    held: dict[str, Any] = {"run": wrap(module, x), "x": x}
    del module, x  # what is held alone keeps their memory

    def op() -> None:
        held.pop("y", None)  # its memory is taken again
        held["y"] = held["run"](held["x"])

    try:
        with torch.no_grad():
            yield Prepared(op, lambda: held["y"][compared].double().cpu().numpy())
    finally:
        held.clear()
        if where == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def on_device(
    problem: Problem, precision: str, order: str, kind: type[Conv], where: str
) -> tuple[nn.Module, Tensor]:
    """The module of a problem, and its input."""
    dtype, memory = DTYPES[precision], FORMATS[order]

    def tensor(array: Any, dtype: torch.dtype) -> Tensor:
        found = torch.from_numpy(array).to(where)
        # not contiguous(): for one channel both orders are contiguous, and only to() changes the strides
        return found.to(dtype=dtype, memory_format=memory) if array.ndim == 4 else found.to(dtype)

    if isinstance(problem, Convolution):
        return kind(tensor(problem.w, dtype), problem.pool), tensor(problem.x, dtype)
    weights = {name: tensor(value, dtype) for name, value in problem.weights.items()}
    return Lenet(weights), tensor(problem.images, torch.float32)
