"""Findings of checked mode about blocks of a cluster that use each other's shared memory and mbarriers."""

from __future__ import annotations

from mini_dnn.device.finding import Fault, Finding

CURES = {
    "ended": "end the kernel with a cluster_sync() that all threads reach: a block's shared memory is "
    "invalid "
    "once the block has returned, so the block must not return while others still use it",
    "made": "let a thread of each block call mbarrier_init and then fence_mbarrier_init(), and put a "
    "cluster_sync() between this and the first use of another block's mbarrier",
    "unawaited": "each block in the mask must wait for its own mbarrier, on which one of its threads expects "
    "the bytes; the mask may contain only such blocks",
}
DOES = {"read": "reads", "write": "writes", "mbarrier_arrive_cluster": "arrives at"}


def explain_cluster(f: Fault) -> Finding | None:
    """Return the finding if the fault is about a block that uses what belongs to another one."""
    if f.kind != "cluster":
        return None
    call, state = f.type.split()
    index = f.array.index(f.offset) if f.array.shape else f.array.name
    where = f"{index}{f' of {f.array}' if f.array.shape else ''} in the shared memory of block {f.home}"
    if state == "ended":
        does = DOES.get(call, f"{call} writes")
        subject = "one block" if call in DOES else "a"
        what = f"{subject} {does} {where}, which may already have returned: nothing makes it wait"
        return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES["ended"])
    lacks = "which no thread has initialised"
    if state == "unpublished":
        lacks = "without a cluster barrier after its mbarrier_init"
    what = f"{call} uses the mbarrier {where}, {lacks}"
    return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES["made"])
