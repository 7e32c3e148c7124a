"""Launches that no GPU could run, or that do not fit their kernel: findings at a line of ``variant.py``."""

import re
from pathlib import Path

import pytest
from convolutions import planned
from launch_samples import KERNEL, student

from mini_dnn.checking.check import check
from mini_dnn.checking.launches import SHARED_LIMIT, check_launches
from mini_dnn.cli import main
from mini_dnn.cli.check import describe
from mini_dnn.device.finding import Finding
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.errors import SharedMemoryError
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant, find, names
from mini_dnn.variant.signatures import Kernels

SHAPE = ConvShape(2, 3, 7, 9, 5, 3, 2)
WITH_KERNELS = [name for name in names() if find(name).plan is not None]


def launches(variant: Variant, shape: ConvShape = SHAPE, arch: int = 90, static: int = 0) -> Finding | None:
    """The finding about the launches if shared arrays of a kernel take ``static`` bytes."""
    return check_launches(
        lambda n: planned(variant, shape.with_batch(n)), shape.batch, arch, lambda kernel: static
    )


def finding(folder: Path, arch: int = 90, static: int = 16384) -> Finding | None:
    return launches(find(folder), SHAPE, arch, static)


@pytest.mark.parametrize(
    ("changed", "line", "what", "cure"),
    [
        ({"block": "(32, 33)"}, 13, "block (32, 33) has 1,056 threads; CUDA allows 1,024", "smaller block"),
        ({"block": "(2048,)"}, 13, "block (2048,) has 2,048 threads", "smaller block"),
        ({"block": "(1, 1, 65)"}, 13, "block.z is 65 in block (1, 1, 65); CUDA allows 1 to 64", "axis"),
        ({"block": "(0,)"}, 13, "block.x is 0", "round up"),
        ({"block": "(1, 1, 1, 1)"}, 13, "block (1, 1, 1, 1) must have one to three entries", ""),
        (
            {"grid": "(1, 65536)"},
            12,
            "grid.y is 65,536 in grid (1, 65536); CUDA allows 1 to 65,535",
            "grid.x",
        ),
        ({"grid": "(2**31,)"}, 12, "grid.x is 2,147,483,648", "grid.x"),
        ({"grid": "(s.P // 16,)"}, 12, "grid.x is 0", "ceil_div"),
        (
            {"shared": "228 * 1024"},
            15,
            "249,856 bytes of shared memory (16,384 static, 233,472 dynamic)",
            "tiles",
        ),
        ({"shared": "-4"}, 15, "-4 dynamic", ""),
        (
            {"args": '("x", "y", 4, 2.0)'},
            14,
            "is long long n and needs np.int64(...); the launch passes the int 4",
            "",
        ),
        (
            {"args": '("x", "y", np.int64(4), 2)'},
            14,
            "float factor and needs a float; the launch passes the int 2",
            "",
        ),
        ({"args": '("x", "y", np.int32(4), 2.0)'}, 14, "the launch passes np.int32(4)", ""),
        ({"args": '("x", 5, np.int64(4), 2.0)'}, 14, "float* y and needs a buffer, by its name", "declare"),
        ({"args": '("x", "y", "w", 2.0)'}, 14, "needs np.int64(...); the launch passes buffer w", "declare"),
        (
            {"args": '("x", "y", np.int64(4))'},
            14,
            "scale takes 4 arguments (const float* __restrict__ x,",
            "order",
        ),
    ],
)
def test_impossible_launches(
    changed: dict[str, str], line: int, what: str, cure: str, tmp_path: Path
) -> None:
    found = finding(student(tmp_path, **changed))
    assert found is not None
    assert found.kind == "launch"
    assert what in found.what
    assert cure in found.cure
    assert found.place is not None
    assert (found.place.file, found.place.line) == ("variant.py", line)
    assert (
        found.place.code == f"{'shared_bytes=' if 'shared' in changed else ''}{next(iter(changed.values()))},"
    )
    assert (found.other is not None) == ("args" in changed)
    if found.other and found.other.place:
        assert (found.other.place.file, found.other.place.line) == ("kernel.cu", 2)


def test_possible_launches(tmp_path: Path) -> None:
    assert finding(student(tmp_path)) is None


@pytest.mark.parametrize(
    ("grid", "cluster", "arch", "what"),
    [
        ("(16,)", "16", 90, "cluster (16, 1, 1) has 16 blocks; CUDA allows 8 in a cluster"),
        ("(8, 8)", "(4, 4)", 90, "cluster (4, 4, 1) has 16 blocks"),
        ("(7,)", "2", 90, "grid.x is 7 in grid (7,), which is not a multiple of cluster.x = 2"),
        ("(4, 3)", "(2, 2)", 90, "grid.y is 3 in grid (4, 3), which is not a multiple of cluster.y = 2"),
        ("(4,)", "(2, 2)", 90, "grid.y is 1 in grid (4,), which is not a multiple"),
        ("(4,)", "0", 90, "cluster.x is 0"),
        ("(4,)", "2", 80, "scale is launched in clusters, which need sm_90; this is sm_80"),
        ("(4,)", "2", 90, ""),
        ("(2, 4, 6)", "(1, 2, 3)", 90, ""),
    ],
)
def test_clusters(grid: str, cluster: str, arch: int, what: str, tmp_path: Path) -> None:
    folder = student(tmp_path, grid=grid, cluster=cluster)
    text = (folder / "variant.py").read_text()
    (folder / "variant.py").write_text(text.replace('idea=""', 'idea="", min_arch=90'))
    found = finding(folder, arch)
    assert (found is not None) == bool(what)
    if found is not None:
        assert what in found.what
        assert found.place is not None
        assert (found.place.line, found.place.code) == (16, f"cluster={cluster},")


@pytest.mark.parametrize(
    ("parameter", "argument", "what"),
    [
        ("const __grid_constant__ ptx::TensorMap x", 'TensorMap("x", (1, 4))', ""),
        ("const __grid_constant__ ptx::TensorMap x", '"x"', "needs a TensorMap(...); the launch passes"),
        ("const float* x", 'TensorMap("x", (1, 4))', "needs a buffer, by its name; the launch passes a"),
        ("int x", 'TensorMap("x", (1, 4))', "needs an int; the launch passes a TensorMap of x"),
        ("const ptx::TensorMap x", 'TensorMap("x", (1, 4))', "but the kernel may pass the address of a copy"),
    ],
)
def test_tensor_maps(parameter: str, argument: str, what: str, tmp_path: Path) -> None:
    kernel = KERNEL.replace("const float* __restrict__ x", parameter)
    folder = student(tmp_path, kernel, args=f'({argument}, "y", np.int64(4), 2.0)')
    text = (folder / "variant.py").read_text().replace("import Launch,", "import Launch, TensorMap,")
    (folder / "variant.py").write_text(text.replace('idea=""', 'idea="", min_arch=90'))
    found = finding(folder)
    assert (found is not None) == bool(what)
    if found is not None:
        assert what in found.what
        assert found.place is not None
        assert found.place.line == 14


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    found = finding(
        student(tmp_path, KERNEL.replace("scale(const", "scales(const").replace("scale(int)", "it"))
    )
    assert found is not None
    assert found.what == "there is no kernel 'scale' in kernel.cu, which has scales (did you mean 'scales'?)"
    assert found.place is not None
    assert found.place.line == 11
    assert found.other is not None
    assert found.other.place is not None
    assert found.other.place.line == 2


def test_a_name_of_cpp(tmp_path: Path) -> None:
    found = finding(student(tmp_path, KERNEL.replace('extern "C" ', "")))
    assert found is not None
    assert "'scale' has a C++ name" in found.what
    assert 'extern "C"' in found.cure
    assert found.other is not None
    assert found.other.place is not None
    assert found.other.place.line == 2


@pytest.mark.parametrize("arch", SHARED_LIMIT)
def test_shared_memory_of_each_gpu(arch: int, tmp_path: Path) -> None:
    """Static and dynamic shared memory together, up to the last byte."""
    dynamic = SHARED_LIMIT[arch] - 16384
    assert finding(student(tmp_path, shared=str(dynamic)), arch) is None
    found = finding(student(tmp_path, shared=str(dynamic + 1)), arch)
    assert found is not None
    assert f"sm_{arch} allows {SHARED_LIMIT[arch]:,} ({SHARED_LIMIT[arch] // 1024} KB)" in found.what


def test_a_batch_that_the_runner_splits(tmp_path: Path) -> None:
    """A grid is not too large if it fits with fewer images."""
    folder = student(tmp_path, grid="(1, 1, s.N)")
    assert launches(find(folder), ConvShape(70000, 1, 1, 1, 1, 1, 1)) is None


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL.replace("long long n", "Count n"),  # perhaps a typedef
        KERNEL.replace("const float* __restrict__ x", "X_AND_MORE"),
        KERNEL.replace("float factor) {", "float factor\n#if A\n, int b\n#endif\n) {"),
        f"#if A\n{KERNEL}#else\n{KERNEL.replace('float* y,', 'float* y, int b,')}#endif\n",
        '#define DEFINE(suffix) extern "C" __global__ void sc##suffix() {}\nDEFINE(ale)\n',
    ],
)
def test_what_is_not_certain_is_left_to_the_device(kernel: str, tmp_path: Path) -> None:
    assert finding(student(tmp_path, kernel, args='("x", "y", 4, 2.0)')) is None


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_declarations_of_the_shipped_kernels_are_read(name: str) -> None:
    variant = find(name)
    signatures = Kernels(variant.source).signatures
    assert signatures
    assert all(signature.parameters for signature in signatures.values())
    operation = variant.operation
    problems = [*operation.check, *operation.spare, *operation.course.values()]
    taken = [problem for problem in problems if not variant.limit_for(problem)]
    assert taken
    for problem in taken:
        assert launches(variant, problem) is None


def test_on_the_emulator(tmp_path: Path) -> None:
    """The static bytes are those of the compiled kernel."""
    variant = find(student(tmp_path, shared="48 * 1024 + 1"))
    report = check(variant, [SHAPE], arch=75)
    (found,) = report.findings
    assert "65,537 bytes of shared memory (16,384 static, 49,153 dynamic); sm_75 allows 65,536" in found.what
    told = "\n".join(describe(report))
    assert "\n   here     variant.py:15 | shared_bytes=48 * 1024 + 1,\n   shape " in told
    (found,) = check(variant, [SHAPE], arch=80).findings
    assert found.kind != "launch"


def test_static_arrays_that_are_too_large(tmp_path: Path) -> None:
    """Neither compiler accepts them, and the launch is not blamed."""
    variant = find(student(tmp_path, KERNEL.replace("tile[4096]", "tile[12289]")))
    (found,) = check(variant, [SHAPE]).findings
    assert (found.kind, found.kernel) == ("launch", "scale")
    assert "49156 bytes of static shared memory" in found.what
    assert "extern __shared__" in found.cure
    assert found.place is not None
    assert (found.place.file, found.place.line) == ("kernel.cu", 2)


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc")
def test_static_arrays_that_are_too_large_for_nvcc(tmp_path: Path) -> None:
    source = student(tmp_path, KERNEL.replace("tile[4096]", "tile[12289]")) / "kernel.cu"
    with pytest.raises(SharedMemoryError, match="too much shared data") as error:
        build_cubin(source, {}, "sm_90")
    assert error.value.kernel == "scale"


def test_of_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = student(tmp_path, block="(64, 17)")
    assert main(["check", "--impl", str(folder), "--shapes", "1,1,4,5,2,3,2", "--arch", "86"]) == 1
    told = capsys.readouterr().out
    assert "LAUNCH          (1, 1, 4, 5)" in told
    assert "1. launch: block (64, 17) has 1,088 threads" in told
    assert "   here     variant.py:13 | (64, 17)," in told


def test_a_gpu_that_is_too_old(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = max((find(name) for name in WITH_KERNELS), key=lambda variant: variant.min_arch)
    folder = student(tmp_path)
    text = (folder / "variant.py").read_text()
    (folder / "variant.py").write_text(
        text.replace('idea=""', f'idea="", min_arch={max(80, newest.min_arch)}')
    )
    assert main(["check", "--impl", str(folder), "--arch", "75"]) == 2
    assert re.search(r"--arch 75: \S+ needs \d+ or newer", capsys.readouterr().err)
