"""Features of PyTorch: compiled programs, graphs, gradients, tensors of many kinds."""

from typing import Any

import numpy as np
import pytest
from gpu_arrays import Torch, arguments, refused, same, small

from mini_dnn import conv2d, gemm, ops
from mini_dnn.device import Device
from mini_dnn.errors import DeviceError
from mini_dnn.interop import release
from mini_dnn.interop.signature import signature_of
from mini_dnn.running.compute import best
from mini_dnn.running.runner import run
from mini_dnn.variant import find

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler emits warnings that we cannot avoid
]


@pytest.fixture
def torch() -> Any:
    found = Torch().library
    import mini_dnn.interop.torch

    assert mini_dnn.interop.torch.NAMESPACE == "mini_dnn"
    yield found
    found._dynamo.reset()
    release()


def drawn(torch: Any, *shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32)).cuda()


def operands(torch: Any) -> tuple[Any, Any]:
    return drawn(torch, 2, 64, 32), drawn(torch, 2, 32, 72, seed=1)


def close(torch: Any, found: Any, expected: Any) -> bool:
    return found.dtype == expected.dtype and torch.allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.fixture(autouse=True)
def strict(torch: Any) -> Any:
    """PyTorch with its own products in full fp32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("name", ops.names())
def test_operators(name: str, torch: Any, cuda: Device) -> None:
    """Every operation: its result, its description for compilers, and PyTorch's own checks."""
    operation = ops.find(name)
    problem = small(find(operation.default))
    arrays = operation.inputs(problem, 0)
    expected = run(best(operation, problem, cuda), problem, arrays, cuda).y
    by_place, named = arguments(operation, problem, arrays, Torch().put)
    signature = signature_of(operation)
    optional = [named.pop(key) for key in signature.optional if key in named]
    given = [by_place[0], by_place[1:], *optional] if signature.many else [*by_place, *optional]
    operator = getattr(torch.ops.mini_dnn, name).default
    found = operator(*given, **named)
    assert same(Torch().get(found), expected)
    torch.library.opcheck(operator, tuple(given), named)


@pytest.mark.parametrize(
    ("mode", "dynamic"), [("default", False), ("default", True), ("reduce-overhead", False)]
)
def test_compiled_programs(mode: str, dynamic: bool, torch: Any) -> None:
    """The program compiles without a graph break. With "reduce-overhead" PyTorch captures a graph of it."""
    mine = torch.ops.mini_dnn

    def program(a: Any, b: Any) -> Any:
        product = mine.gemm(a, (2 * b).transpose(1, 2).contiguous(), layout="nt")
        return mine.softmax(torch.relu(product).reshape(-1, b.shape[2])) + 1

    compiled = torch.compile(program, fullgraph=True, dynamic=dynamic, mode=mode)
    b = operands(torch)[1]
    for m in (64, 48):
        for seed in range(4):
            given = drawn(torch, 2, m, 32, seed=seed)
            expected = torch.softmax(torch.relu(given @ (2 * b)), 2).reshape(-1, 72) + 1
            assert close(torch, compiled(given, b).clone(), expected)


def test_compiled_programs_with_scratch_memory(torch: Any) -> None:
    x, w = drawn(torch, 4, 3, 20, 21), drawn(torch, 5, 3, 4, 5, seed=1)
    mine = torch.ops.mini_dnn
    compiled = torch.compile(lambda x, w: mine.conv2d(x + 1, w, impl="m2").relu(), fullgraph=True)
    expected = torch.nn.functional.conv2d(x + 1, w).relu()
    assert torch.allclose(compiled(x, w), expected, rtol=1e-3, atol=1e-2)


def test_graphs(torch: Any) -> None:
    """A call is captured on the stream on which it was prepared."""
    a, b = operands(torch)
    out, stream = torch.empty(2, 64, 72, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        gemm(a, b, out=out)
        gemm(a, b, alpha=1.0)
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        gemm(a, b, out=out)
        c = gemm(a, b, alpha=1.0)
    expected = (3 * a) @ b
    a.mul_(3)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert close(torch, out, expected)
    assert close(torch, c, expected)


def test_a_capture_that_is_not_ready_is_refused(torch: Any) -> None:
    a, b = operands(torch)
    out = torch.empty(2, 64, 72, device="cuda")
    torch.cuda.synchronize()
    with (
        pytest.raises(DeviceError, match="call it once on the stream, then capture it"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        gemm(a, b, out=out)
    gemm(a, b, out=out)
    assert close(torch, out, a @ b)


def test_gradients(torch: Any) -> None:
    a, b = operands(torch)
    weight = torch.nn.Parameter(b.clone())
    for call in (gemm, torch.ops.mini_dnn.gemm):
        with refused("b requires a gradient, but there is no backward pass"):
            call(a, weight)
        with torch.no_grad():
            assert close(torch, call(a, weight), a @ b)
        with torch.inference_mode():
            assert close(torch, call(a, weight), a @ b)
            out = torch.empty(2, 64, 72, device="cuda")
            assert gemm(a, b, out=out) is out
        assert close(torch, call(a, weight.detach()), a @ b)


def test_autograd_is_told_of_results_that_are_overwritten(torch: Any) -> None:
    a, b = operands(torch)
    out = torch.ones(2, 64, 72, device="cuda")
    x = torch.ones(2, 64, 72, device="cuda", requires_grad=True)
    y = (x * out).sum()  # keeps out for the backward pass
    gemm(a, b, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_tensors_that_are_refused(torch: Any) -> None:
    x, w = drawn(torch, 2, 3, 8, 8), drawn(torch, 4, 3, 3, 3, seed=1)
    with refused(r"x \(2, 3, 8, 8\) is not contiguous .* pass x.contiguous\(\)"):
        conv2d(x.to(memory_format=torch.channels_last), w)
    with refused("x is torch.Tensor on cpu, w is torch.Tensor on cuda:0"):
        conv2d(x.cpu(), w)
    with refused("x is torch.Tensor on cuda:0, w is torch.Tensor on cpu"):
        conv2d(x, w.cpu())
    with refused("complex64"):
        conv2d(x.to(torch.complex64), w)
    with refused("float64, which float32 cannot hold exactly"):
        conv2d(x.double(), w)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types(dtype: str, torch: Any) -> None:
    """The types of operands and results. If each operand is a matrix, so is the result."""
    kind, word = getattr(torch, dtype), {"float16": "fp16", "bfloat16": "bf16"}[dtype]
    a, b = (tensor[0].to(kind) for tensor in operands(torch))
    expected = a.float() @ b.float()
    assert close(torch, gemm(a, b), expected)
    for found in (gemm(a, b, out=word), gemm(a, b, out=torch.empty(64, 72, dtype=kind, device="cuda"))):
        assert (found.shape, found.dtype) == (expected.shape, kind)
        assert torch.allclose(found.float(), expected, rtol=1e-2, atol=1e-1)
    operator = torch.ops.mini_dnn.gemm
    assert close(torch, operator(a, b), expected)
    torch.library.opcheck(operator.default, (a, b), {"out": word})


def test_the_default_stream_and_a_stream_of_ones_own(torch: Any) -> None:
    a, b = operands(torch)
    expected = a @ b
    assert close(torch, gemm(a, b), expected)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        c = gemm(a, b)
    torch.cuda.current_stream().wait_stream(stream)
    assert close(torch, c, expected)


def test_two_gpus(torch: Any) -> None:
    """Tensors are used on their own GPU, and all tensors of a call must be on the same GPU."""
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    a, b = operands(torch)
    expected = (a @ b).cpu()
    other = gemm(a.to("cuda:1"), b.to("cuda:1"))
    assert other.device == torch.device("cuda:1")
    assert close(torch, other.cpu(), expected)
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert close(torch, gemm(a, b).cpu(), expected)
        assert torch.cuda.current_device() == 1
    with refused("a is on GPU 0, b is on GPU 1: the arrays of one call must be on one GPU"):
        gemm(a, b.to("cuda:1"))


def test_tensors_in_host_memory(torch: Any) -> None:
    a, b = (tensor.cpu() for tensor in operands(torch))
    assert torch.allclose(torch.ops.mini_dnn.gemm(a, b), a @ b, rtol=1e-3, atol=1e-3)
