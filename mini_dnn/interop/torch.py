"""Each operation as an operator of PyTorch, ``torch.ops.mini_dnn``, which `torch.compile` supports.

``import mini_dnn.interop.torch`` registers them. They take and return tensors. Optional arrays come after the
required ones, and all other arguments are keyword arguments. CUDA tensors are used in place; tensors in host
memory are treated like NumPy arrays. There is no backward pass: tensors that require a gradient are refused,
unless gradients are disabled. PyTorch 2.8 or newer is required.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter
from typing import Any

import numpy as np
import torch

from mini_dnn import ops
from mini_dnn.interop.function import Function
from mini_dnn.interop.kinds import refuse_order
from mini_dnn.interop.native import TORCH_CURE, refuse_gradient
from mini_dnn.interop.problem import problem_of
from mini_dnn.interop.signature import Field, signature_of
from mini_dnn.ops import Operation

NAMESPACE = "mini_dnn"
TYPES = {str: "str", float: "float", int: "int", bool: "bool"}


def schema_of(operation: Operation) -> str:
    """An operation's signature in PyTorch's notation: ``(Tensor x, *, str impl="") -> Tensor``."""
    signature = signature_of(operation)
    arrays = [f"Tensor {name}" for name in signature.arrays]
    arrays += [f"Tensor[] {signature.many}"] if signature.many else []
    arrays += [f"Tensor? {name}=None" for name in signature.optional]
    fields = [_field(name, field) for name, field in signature.fields.items()]
    results = ["Tensor" for _ in operation.check[0].named("out")]
    returns = results[0] if len(results) == 1 else f"({', '.join(results)})"
    taken = ", ".join([*arrays, "*", *fields, 'str impl=""'])
    return f"({taken}) -> {returns}"


def _field(name: str, field: Field) -> str:
    """A field in PyTorch's notation: ``float alpha=1.0``, ``float? beta=None``."""
    word = next(
        f"{word}{mark}"
        for kind, word in TYPES.items()
        for mark, type_ in (("", kind), ("?", kind | None))
        if field.type == type_
    )
    if field.default is Parameter.empty:
        return f"{word} {name}"
    default = f'"{field.default}"' if isinstance(field.default, str) else field.default
    return f"{word} {name}={default}"


class Operator:
    """The functions that PyTorch calls for an operation.

    Each method takes the arrays, with optional ones after the others, and as keyword arguments a variant
    (empty: the best one) and the fields of the problem.
    """

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._signature, self._call = signature_of(operation), Function(operation)

    def on_gpu(self, *given: Any, impl: str = "", **fields: Any) -> Any:
        """With CUDA tensors."""
        names, tensors, count = self._sorted(given)
        optional = dict(zip(names[count:], tensors[count:], strict=True))
        return self._call(*tensors[:count], impl=impl or None, **optional, **fields)

    def on_host(self, *given: Any, impl: str = "", **fields: Any) -> Any:
        """Call the operation with tensors in host memory."""
        names, tensors, count = self._sorted(given)
        _check(names, tensors)
        arrays = [array_of(tensor) for tensor in tensors]
        optional = dict(zip(names[count:], arrays[count:], strict=True))
        found = self._call(*arrays[:count], impl=impl or None, **optional, **fields)
        return tuple(map(tensor_of, found)) if isinstance(found, tuple) else tensor_of(found)

    def fake(self, *given: Any, impl: str = "", **fields: Any) -> Any:
        """Return the shapes and types of the results, for tensors without memory."""
        names, tensors, _ = self._sorted(given)
        _check(names, tensors)
        metas = [(tuple(map(int, t.shape)), str(t.dtype).removeprefix("torch.")) for t in tensors]
        asked = problem_of(self.operation, names, metas, fields)
        found = tuple(
            torch.empty(shape, dtype=getattr(torch, dtype), device=tensors[0].device)
            for shape, dtype in asked.results.values()
        )
        return found if len(found) > 1 else found[0]

    def _sorted(self, given: Sequence[Any]) -> tuple[tuple[str, ...], tuple[Any, ...], int]:
        """The names of all arrays, the arrays, and the number of required ones."""
        count = len(self._signature.arrays)
        arrays, rest = tuple(given[:count]), given[count:]
        if self._signature.many:
            arrays, rest = (*arrays, *rest[0]), rest[1:]
        found = zip(self._signature.optional, rest, strict=False)
        optional = {name: tensor for name, tensor in found if tensor is not None}
        names = (*self._signature.names(len(arrays)), *optional)
        return names, (*arrays, *optional.values()), len(arrays)


def array_of(tensor: Any) -> np.ndarray:
    """A tensor in host memory as a NumPy array."""
    values = tensor.detach()
    if values.dtype != torch.bfloat16:
        return np.asarray(values.numpy())
    return np.asarray(values.contiguous().view(torch.int16).numpy()).view("bfloat16")


def tensor_of(array: np.ndarray) -> Any:
    """A NumPy array as a tensor in host memory."""
    if array.dtype.name != "bfloat16":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def _check(names: Sequence[str], tensors: Sequence[Any]) -> None:
    """Refuse arguments that the call itself would refuse."""
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.requires_grad and torch.is_grad_enabled():
            refuse_gradient(name)
        if tensor.is_cuda and not tensor.is_contiguous():
            refuse_order(names, tensors, tensor, TORCH_CURE)


def _define(operation: Operation) -> None:
    """Define the operator of an operation."""
    name, operator = f"{NAMESPACE}::{operation.name}", Operator(operation)
    # compiled programs must pass tensors with the same strides as without a compiler
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    torch.library.define(name, schema_of(operation), tags=tags)
    torch.library.impl(name, "cuda", operator.on_gpu)
    torch.library.impl(name, "cpu", operator.on_host)
    torch.library.register_fake(name, operator.fake)


for _name in ops.names():
    _define(ops.find(_name))
