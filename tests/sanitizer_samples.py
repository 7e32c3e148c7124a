"""Reports of Compute Sanitizer about our kernels. ``@x+8@`` is the address 8 bytes into buffer x."""

from pathlib import Path

from mini_dnn.variant import find

M1, M2 = find("m1"), find("m2")


def line_of(words: str, source: Path = M2.source) -> int:
    """The number of the only line that contains these words."""
    (number,) = (i for i, line in enumerate(source.read_text().splitlines(), 1) if words in line)
    return number


LOAD, STORE, FILL, USE = (
    line_of("const float value = x[", M1.source),
    line_of("* P * Q + pixel] = acc", M1.source),
    line_of("w_tile[threadIdx.y][threadIdx.x] ="),
    line_of("acc += w_tile"),
)
BARRIER = line_of("the tiles are complete")

OUT_OF_BOUNDS = f"""========= Invalid __global__ read of size 4 bytes
=========     at conv_direct+0x1f0 in kernel.cu:{LOAD}
=========     by thread (35,0,0) in block (1,2,1)
=========     Access to @x+1512@ is out of bounds
=========     and is 1 bytes after the nearest allocation at @x+0@ of size 1,512 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at conv_direct+0x1f0 in kernel.cu:{LOAD}
=========     by thread (36,0,0) in block (1,2,1)
=========     Access to @x+1516@ is out of bounds
=========     and is 5 bytes after the nearest allocation at @x+0@ of size 1,512 bytes
=========
========= Target application returned an error
"""
HAZARDS = f"""========= Error: Potential RAW hazard detected at __shared__ 0x404 in block (11,0,0) :
=========     Write Thread (0,1,0) at gemm+0x860 in kernel.cu:{FILL}
=========     Read Thread (5,3,0) at gemm+0x9d0 in kernel.cu:{USE}
=========     Current Value : 0, Incoming Value : 181
=========
========= Error: Race reported between Read access at gemm+0x9d0 in kernel.cu:{USE}
=========     and Write access at gemm+0x860 in kernel.cu:{FILL} [2,048 hazards]
=========
""".replace("2,048", "2048")
DIVERGENT = f"""========= Barrier error detected. Divergent thread(s) in block.
=========     at gemm(const float *, const float *, float *, int, long long, int)+0xb0 in kernel.cu:{BARRIER}
=========     by thread (32,0,0) in block (0,0,0)
=========
"""
