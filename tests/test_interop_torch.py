"""Operations as PyTorch operators with tensors in host memory; `test_interop_gpu` uses tensors on a GPU."""

from typing import Any

import numpy as np
import pytest
from gpu_arrays import small

import mini_dnn
from mini_dnn import ops
from mini_dnn.errors import ShapeError, VariantError
from mini_dnn.interop.signature import signature_of
from mini_dnn.variant import find

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
front: Any = pytest.importorskip("mini_dnn.interop.torch")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::FutureWarning:torch")
MINE = torch.ops.mini_dnn


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


A, B = drawn(2, 8, 9), drawn(2, 9, 7, seed=1)


def close(found: Any, expected: Any) -> bool:
    return found.dtype == expected.dtype and torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_signatures() -> None:
    assert front.schema_of(ops.find("softmax")) == '(Tensor x, *, str impl="") -> Tensor'
    assert front.schema_of(ops.find("conv2d_relu_pool")) == (
        '(Tensor x, Tensor w, *, int pool, str impl="") -> Tensor'
    )
    assert front.schema_of(ops.find("lenet")) == '(Tensor images, Tensor[] weights, *, str impl="") -> Tensor'
    gemm = front.schema_of(ops.find("gemm"))
    assert gemm.startswith('(Tensor a, Tensor b, Tensor? c0=None, *, str out="fp32", str layout="nn", float')
    assert gemm.endswith('alpha=1.0, float? beta=None, str constant="", str impl="") -> Tensor')


@pytest.mark.parametrize("name", ops.names())
def test_every_operation(name: str) -> None:
    """The results, their description for compilers, and PyTorch's own checks of operators."""
    operation = ops.find(name)
    signature = signature_of(operation)
    problem = small(find(operation.default))
    arrays = operation.inputs(problem, 0)
    fields = {f: v for f, v in problem.fields.items() if f in signature.fields}
    tensors = [front.tensor_of(a) for key, a in arrays.items() if key not in signature.optional]
    tensors = [tensors[0], tensors[1:]] if signature.many else tensors
    tensors += [front.tensor_of(arrays[key]) for key in signature.optional if key in arrays]
    operator = getattr(MINE, name).default
    found = operator(*tensors, **fields)
    named = {key: arrays[key] for key in signature.optional if key in arrays}
    plain = [a for key, a in arrays.items() if key not in signature.optional]
    expected = front.tensor_of(getattr(mini_dnn, name)(*plain, **named, **fields))
    assert close(found, expected)
    fake = front.Operator(operation).fake(*tensors, **fields)
    assert (fake.shape, fake.dtype, fake.device) == (found.shape, found.dtype, found.device)
    torch.library.opcheck(operator, tuple(tensors), fields)


def test_what_is_given_by_name_and_left_out() -> None:
    c0 = drawn(2, 8, 7, seed=2)
    assert close(MINE.gemm(A, B), A @ B)
    assert close(MINE.gemm(A, B, c0), A @ B + c0)
    assert close(MINE.gemm(A, B, c0, alpha=2.0, beta=-0.5, impl="gemm/v0"), 2 * (A @ B) - c0 / 2)
    assert close(MINE.gemm(A, B.transpose(1, 2).contiguous(), layout="nt"), A @ B)
    assert MINE.gemm(A.half(), B.half(), out="fp16").dtype == torch.float16
    with pytest.raises(VariantError, match="no variant 'gemm/v99'"):
        MINE.gemm(A, B, impl="gemm/v99")


@pytest.mark.parametrize("dynamic", [False, True])
def test_programs_are_compiled_with_them(dynamic: bool) -> None:
    """The program compiles without a graph break, even if an input is transposed first."""

    def program(a: Any, b: Any) -> Any:
        product = MINE.gemm(a, (2 * b).transpose(1, 2).contiguous(), layout="nt")
        return MINE.softmax(torch.relu(product).reshape(-1, b.shape[2])) + 1

    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for m in (8, 5):
        a = A[:, :m].contiguous()
        assert close(compiled(a, B), torch.softmax(torch.relu(a @ (2 * B)), 2).reshape(-1, 7) + 1)


def test_gradients_are_refused() -> None:
    a = A.clone().requires_grad_()
    with pytest.raises(ShapeError, match="a requires a gradient, but there is no backward pass"):
        MINE.gemm(a, B)
    with torch.no_grad():
        assert close(MINE.gemm(a, B), A @ B)
    assert close(MINE.gemm(a.detach(), B), A @ B)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="a requires a gradient"):
        torch.compile(lambda a, b: MINE.gemm(a, b), fullgraph=True, backend="aot_eager")(a, B)


def test_functions_take_tensors_in_host_memory_as_arrays_of_numpy() -> None:
    found = mini_dnn.gemm(A, B)
    assert isinstance(found, np.ndarray)
    assert close(torch.from_numpy(found), A @ B)
