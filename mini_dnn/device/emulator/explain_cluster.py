"""What checked mode says of the blocks of a cluster that use each other's shared memory and mbarriers."""

from __future__ import annotations

from mini_dnn.device.finding import Fault, Finding

CURES = {
    "ended": "end the kernel with a cluster_sync() that all threads come to: a block's shared memory is gone "
    "once it has returned, so it must not return before all others are done with it",
    "made": "let a thread of each block call mbarrier_init and then fence_mbarrier_init(), and put a "
    "cluster_sync() between that and the first use of another block's mbarrier",
    "unawaited": "each block that a mask names waits for its own mbarrier, of which a thread expects the "
    "bytes; name only blocks that do",
}
DOES = {"read": "reads", "write": "writes", "mbarrier_arrive_cluster": "arrives at"}


def explain_cluster(f: Fault) -> Finding | None:
    """The finding, if the fault is one of a block that uses what belongs to another one."""
    if f.kind != "cluster":
        return None
    call, state = f.type.split()
    index = f.array.index(f.offset) if f.array.shape else f.array.name
    where = f"{index}{f' of {f.array}' if f.array.shape else ''} in the shared memory of block {f.home}"
    if state == "ended":
        does = DOES.get(call, f"{call} writes")
        subject = "one block" if call in DOES else "a"
        what = f"{subject} {does} {where}, which may have returned by then: nothing makes it wait"
        return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES["ended"])
    lacks = "where no thread has initialised one"
    if state == "unpublished":
        lacks = "and no barrier of the cluster came between its mbarrier_init and that"
    what = f"{call} uses the mbarrier {where}, {lacks}"
    return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES["made"])
