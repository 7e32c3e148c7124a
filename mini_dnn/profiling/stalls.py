"""The reasons why warps wait, by Nsight Compute's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """A reason why warps wait, with a hint. See "Warp Stall Reasons" in the Kernel Profiling Guide."""

    waits_for: str
    hint: str


STALLS = {
    "long_scoreboard": Stall(
        "data from global memory (L1, L2 or DRAM)",
        "start loads earlier and keep several in flight in each thread; or load a value once and reuse it "
        "from shared memory or registers",
    ),
    "short_scoreboard": Stall(
        "data from shared memory", "keep values in registers across the loop, and look for bank conflicts"
    ),
    "mio_throttle": Stall(
        "room in the queue of shared-memory instructions",
        "do more arithmetic per shared-memory load: a block of results per thread, or float4 loads",
    ),
    "lg_throttle": Stall(
        "room in the queue of global-memory instructions",
        "use fewer and wider loads and stores: float4, and no address twice",
    ),
    "math_pipe_throttle": Stall(
        "a busy arithmetic unit", "the kernel is compute-bound: use fewer operations, half2, or tensor cores"
    ),
    "gmma": Stall(
        "the tensor cores",
        "the kernel is compute-bound: keep the tensor cores supplied with operands, and avoid padding",
    ),
    "barrier": Stall(
        "other warps at __syncthreads()",
        "use more and smaller blocks per SM, so that another block runs in the meantime; or load the next "
        "tile while this one is used",
    ),
    "wait": Stall(
        "the fixed latency of the previous instruction",
        "put independent operations next to each other: unroll loops, or compute several results per thread",
    ),
    "not_selected": Stall(
        "its turn: it was ready, but another warp was selected",
        "there are enough warps; occupancy is not a problem",
    ),
    "no_instructions": Stall("instructions to be fetched", "use a shorter loop body: unroll less"),
    "no_instruction": Stall("instructions to be fetched", "use a shorter loop body: unroll less"),
    "branch_resolving": Stall(
        "the target of a branch", "use fewer branches: unroll the inner loop, and hoist conditions out of it"
    ),
    "imc_miss": Stall(
        "the cache of constant memory", "let all threads of a warp read the same constant at a time"
    ),
    "drain": Stall(
        "the completion of its last stores", "let neighbouring threads store to neighbouring addresses"
    ),
    "dispatch_stall": Stall("the dispatcher", "see the report's source page"),
    "membar": Stall("a memory fence", "use fewer fences, or narrower ones (__threadfence_block)"),
    "tex_throttle": Stall("room in the texture unit's queue", "use fewer loads through the texture path"),
    "sleeping": Stall("the end of __nanosleep", "see the report's source page"),
}
