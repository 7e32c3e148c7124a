"""Plans as text, and the plan that the grader reads from a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mini_dnn.device.product import Product
from mini_dnn.grading import decoding
from mini_dnn.grading.plans import Head
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.variant import Planned

SHAPE = ConvShape(3, 2, 9, 21, 5, 2, 5)
NETWORK = LenetBatch(3)
HEAD = Head("conv2d", "fp32", 75, "", False)
SOURCE = Path("somewhere/kernel.cu")


def decoded(answer: bytes, problem: Any = SHAPE) -> Planned:
    return decoding.decode(answer, problem, HEAD, SOURCE)


def text(steps: list[Any], **more: Any) -> bytes:
    return json.dumps({"scratch": {}, "defines": {}, "setup": [], "steps": steps, **more}).encode()


def scratch(*values: Any) -> dict[str, Any]:
    return {"col": list(values)}


def gemm(m: Any, n: Any, k: Any, a: str = "x", **more: Any) -> dict[str, Any]:
    """A matrix product of x and w into y, with any values as sizes and factors."""
    product = vars(Product(1, 1, 1)) | {"m": m, "n": n, "k": k} | more
    return {"cublas": [a, "w", "y"], "product": list(product.values()), "stream": 0}


def launch(**changes: Any) -> dict[str, Any]:
    plain = {"launch": "k", "grid": [1], "block": [1], "args": [], "shared_bytes": 0, "stream": 0}
    return plain | {"cluster": 1, "early": False} | changes
