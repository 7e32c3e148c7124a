"""The vision transformer of `vit.py` in PyTorch: in eager mode and with torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from mini_dnn.nn.models.vit import VitSizes
from mini_dnn.nn.transformer import EPSILON

ATTENTION = {"": None, "cuDNN": SDPBackend.CUDNN_ATTENTION}  # PyTorch's own choice, and the fastest on Hopper

Run = Callable[[], Any]


class Vit(nn.Module):
    """`mini_dnn.nn.models.vit` with the same names of weights, except for dots."""

    def __init__(self, sizes: VitSizes, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.sizes = sizes
        for name, value in weights.items():
            self.register_buffer(name.replace(".", "_"), value)

    def forward(self, images: Tensor) -> Tensor:
        """(N, channels, side, side) to scores (N, classes) in fp32 or more."""
        s, N = self.sizes, len(images)
        filters = self.of("patches.linear.weight").view(s.width, s.channels, s.patch, s.patch)
        patches = functional.conv2d(images, filters, self.of("patches.linear.bias"), stride=s.patch)
        class_token = self.of("positions.class").expand(N, 1, s.width)
        x = torch.cat([class_token, patches.flatten(2).transpose(1, 2)], 1) + self.of("positions.position")
        for block in range(1, s.depth + 1):
            x = x + self.attention(f"attention{block}", x)
            x = x + self.mlp(f"mlp{block}", x)
        scores = self.linear("head", self.norm("norm", x[:, 0]))
        return scores if scores.dtype == torch.float64 else scores.float()

    def attention(self, name: str, x: Tensor) -> Tensor:
        """Norm, queries, keys and values, heads, projection."""
        s, (N, T, D) = self.sizes, x.shape
        qkv = self.linear(f"{name}.heads.qkv", self.norm(f"{name}.norm", x))
        q, k, v = qkv.view(N, T, 3, s.heads, s.head_width).permute(2, 0, 3, 1, 4)
        o = functional.scaled_dot_product_attention(q, k, v)
        return self.linear(f"{name}.heads.out", o.transpose(1, 2).reshape(N, T, D))

    def mlp(self, name: str, x: Tensor) -> Tensor:
        """Norm, up, GELU, down."""
        inner = self.linear(f"{name}.up", self.norm(f"{name}.norm", x))
        return self.linear(f"{name}.down", functional.gelu(inner, approximate="tanh"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Layer norm over the last axis."""
        width = (self.sizes.width,)
        return functional.layer_norm(
            x, width, self.of(f"{name}.weight"), self.of(f"{name}.bias"), float(EPSILON)
        )

    def linear(self, name: str, x: Tensor) -> Tensor:
        """``x weight^T + bias``."""
        return functional.linear(x, self.of(f"{name}.weight"), self.of(f"{name}.bias"))

    def of(self, name: str) -> Tensor:
        """The weight with this name."""
        found: Tensor = getattr(self, name.replace(".", "_"))
        return found


def on_gpu(arrays: Mapping[str, Any], dtype: torch.dtype, where: str = "cuda") -> dict[str, Tensor]:
    """Copy NumPy arrays to the GPU in another type."""
    return {name: torch.from_numpy(array).to(where, dtype) for name, array in arrays.items()}


def reference(sizes: VitSizes, images: Tensor, weights: Mapping[str, Any], part: int = 32) -> Tensor:
    """Compute scores in float64, some images at a time."""
    module = Vit(sizes, on_gpu(weights, torch.float64, str(images.device)))
    with sdpa_kernel(SDPBackend.MATH):
        return torch.cat([module(images[i : i + part].double()) for i in range(0, len(images), part)])


def ways(
    sizes: VitSizes, images: Tensor, weights: Mapping[str, Any], modes: Sequence[str]
) -> Iterator[tuple[str, Run]]:
    """Yield ways in which PyTorch computes the scores: a name, and a function that computes them once."""
    module = Vit(sizes, on_gpu(weights, torch.float16)).eval()
    for mode in modes:
        for backend, chosen in ATTENTION.items():
            torch._dynamo.reset()
            if mode == "eager":
                run: Callable[[Tensor], Tensor] = module
            else:
                torch._dynamo.mark_static_address(images)  # otherwise, its CUDA graph would first copy them
                run = torch.compile(module, mode=mode, dynamic=False)  # type: ignore[assignment]

            def once(run: Callable[[Tensor], Tensor] = run, chosen: Any = chosen) -> Tensor:
                with sdpa_kernel(chosen) if chosen else nullcontext():
                    return run(images)

            name = "PyTorch eager" if mode == "eager" else f"torch.compile {mode}"
            yield f"{name}, {backend} attention" if backend else name, once


def captured(once: Run) -> tuple[Run, Callable[[], Tensor]]:
    """Capture a run in a CUDA graph, without Python and separate launches. Return it with its result."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(2):
            once()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = once()
    return graph.replay, lambda: result


def milliseconds(run: Run, count: int) -> float:
    """Return the milliseconds of a run, averaged over ``count`` consecutive ones."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / count
