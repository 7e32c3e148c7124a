"""Plans with several streams whose steps are ordered, and plans whose steps are not."""

# ruff: noqa: E501

KERNEL = """\
__constant__ float factor[1];
__device__ float kept[1024];
__device__ int count;
#define I (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" __global__ void scale(const float* x, const float* w, float* y, int n) {
  if (I < n) y[I] = w[0] * x[I];
}
extern "C" __global__ void scale_part(const float* x, const float* w, float* y, int first, int n) {
  if (I < n) y[first + I] = w[0] * x[first + I];
}
extern "C" __global__ void scale_by_constant(const float* x, float* y, int n) {
  if (I < n) y[I] = factor[0] * x[I];
}
extern "C" __global__ void keep(const float* x, int n) {
  if (I < n) kept[I] = x[I];
}
extern "C" __global__ void scale_kept(const float* w, float* y, int n) {
  if (I < n) y[I] = w[0] * kept[I];
}
extern "C" __global__ void clear(float* y, int n) {
  if (I < n) y[I] = 0.0f;
}
extern "C" __global__ void add(const float* x, const float* w, float* y, float share, int n) {
  if (I < n) atomicAdd(&y[I], share * w[0] * x[I]);
}
extern "C" __global__ void tally() { atomicAdd(&count, 1); }
"""
VARIANT = """\
from mini_dnn.variant import CopyIn, CopyOut, CopyToSymbol, Images, Launch, Record, Variant, Wait, ceil_div


def launch(kernel, n, args, stream=0):
    return Launch(kernel, (ceil_div(n, 64),), (64,), args, stream=stream)


def plan(s):
    n, half = s.N * s.H * s.W, s.N // 2
    whole = Images("x", 0, s.N)
    steps = []
{steps}
    return steps


VARIANT = Variant("conv2d", "", plan, scratch=lambda s: {{"t": (s.N, s.H, s.W), "u": (s.N, s.H, s.W)}})
"""
RIGHT = {
    "recorded and waited for": """
    steps += [CopyIn(whole, 1), Record("x_is_there", 1), Wait("x_is_there", 0)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n)), Record("y_is_there")]
    steps += [Wait("y_is_there", 2), CopyOut(Images("y", 0, s.N), 2)]
""",
    "halves by themselves": """
    for part in range(2):
        x, y = (Images(name, part * half, (part + 1) * half) for name in "xy")
        steps += [CopyIn(x, part), launch("scale", n // 2, (x, "w", y, n // 2), part), CopyOut(y, part)]
""",
    "halves by an offset": """
    steps = [launch("scale_part", n // 2, ("x", "w", "y", part * n // 2, n // 2), part) for part in range(2)]
""",
    "through a third stream": """
    steps += [launch("clear", n, ("t", n), 1), Record("a", 1), Wait("a", 2), Record("b", 2), Wait("b", 0)]
    steps += [launch("scale", n, ("x", "w", "t", n)), launch("scale", n, ("t", "w", "u", n))]
    steps += [launch("scale", n, ("x", "w", "y", n))]
""",
    "atomics on both sides": """
    steps += [launch("clear", n, ("y", n)), Record("is_clear"), Wait("is_clear", 1)]
    steps += [launch("add", n, ("x", "w", "y", 0.5, n), part) for part in range(2)]
    steps += [launch("tally", 1, (), part) for part in range(2)]
""",
    "an event that is recorded twice": """
    for part in range(2):
        x, y = (Images(name, part * half, (part + 1) * half) for name in "xy")
        steps += [CopyIn(x, 1), Record("here", 1), Wait("here")]
        steps += [launch("scale", n // 2, (x, "w", y, n // 2)), CopyOut(y)]
""",
    "a variable that is filled first": """
    steps += [CopyToSymbol("factor", "w", 1), Record("filled", 1), Wait("filled")]
    steps += [launch("scale_by_constant", n, ("x", "y", n))]
""",
}
WRONG = {
    "launch before its copy": """
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
    steps += [CopyIn(whole, 1)]
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "launch beside its copy": """
    steps += [CopyIn(whole, 1)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "copy out on another stream": """
    steps += [CopyIn(whole)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]
    steps += [CopyOut(Images("y", 0, s.N), 1)]  # expect: race
""",
    "copy out before the launch, on another stream": """
    steps += [CopyIn(whole)]
    steps += [CopyOut(Images("y", 0, s.N), 1)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
""",
    "scratch shared by streams": """
    for part in range(2):
        x, y, m = Images("x", part * half, (part + 1) * half), Images("y", part * half, (part + 1) * half), n // 2
        steps += [
            Launch("add", (1,), (1,), (x, "w", y, 0.0, 0), stream=part),
            Launch("keep", (ceil_div(m, 64),), (64,), (x, m), stream=part),  # expect: race
            Launch("scale_kept", (ceil_div(m, 64),), (64,), ("w", y, m), stream=part),
        ]
""",
    "a scratch buffer shared by streams": """
    for part in range(2):
        x, y, m = Images("x", part * half, (part + 1) * half), Images("y", part * half, (part + 1) * half), n // 2
        steps += [
            Launch("scale", (ceil_div(m, 64),), (64,), (x, "w", "t", m), stream=part),  # expect: race
            Launch("scale", (ceil_div(m, 64),), (64,), (x, "w", y, m), stream=part),
        ]
""",
    "a wait that comes too early": """
    steps += [CopyIn(whole, 1), Record("early", 1), Wait("early"), launch("clear", n, ("t", n), 1)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("t", "w", "y", n))]  # expect: race
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "a record that comes too early": """
    steps += [Record("x_is_there", 1), CopyIn(whole, 1), Wait("x_is_there")]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "a wait on the wrong stream": """
    steps += [CopyIn(whole, 1), Record("x_is_there", 1), Wait("x_is_there", 2)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "a wait for what nobody records": """
    steps += [CopyIn(whole, 1)]
    steps += [Wait("x_is_there")]  # expect: launch
    steps += [Record("x_is_there", 1), launch("scale", n, ("x", "w", "y", n)), CopyOut(Images("y", 0, s.N))]
""",
    "a variable that is filled beside": """
    steps += [CopyToSymbol("factor", "w", 1)]
    steps += [Launch("scale_by_constant", (ceil_div(n, 64),), (64,), ("x", "y", n))]  # expect: race
""",
    "parts that overlap by one image": """
    for part in range(2):
        first, last = (0, half + 1) if not part else (half, s.N)
        x, y, m = Images("x", first, last), Images("y", first, last), (last - first) * s.H * s.W
        steps += [Launch("scale", (ceil_div(m, 64),), (64,), (x, "w", y, m), stream=part)]  # expect: race
""",
    "an atomic beside a plain write": """
    steps += [Launch("clear", (ceil_div(n, 64),), (64,), ("y", n), stream=1)]
    steps += [Launch("add", (ceil_div(n, 64),), (64,), ("x", "w", "y", 1.0, n))]  # expect: race
""",
    "copy out before the launch, on its stream": """
    steps += [CopyIn(whole)]
    steps += [CopyOut(Images("y", 0, s.N))]  # expect: unwritten
    steps += [launch("scale", n, ("x", "w", "y", n))]
""",
    "launch before its copy, on its stream": """
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: uninitialised
    steps += [CopyIn(whole)]
    steps += [CopyOut(Images("y", 0, s.N))]
""",
}
