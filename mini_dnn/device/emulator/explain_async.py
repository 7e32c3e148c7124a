"""What checked mode says of asynchronous copies, products of a warpgroup and mbarriers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from mini_dnn.device.emulator.explain import explain_stuck
from mini_dnn.device.emulator.explain_cluster import CURES as CLUSTER_CURES
from mini_dnn.device.finding import CURES as WAIT_CURES
from mini_dnn.device.finding import Fault, Finding, Party

CLUSTER_WAIT = re.compile(r"wait at (cluster_\w+) \(.*?\), which (\d+ of the \d+) threads")
WAITS = {
    "cp_async": "cp_async_wait",
    "bulk_load": "mbarrier_wait, with the parity of its phase",
    "bulk_store": "bulk_wait_read",
    "tensor_load": "mbarrier_wait, with the parity of its phase",
    "tensor_store": "bulk_wait_read",
    "wgmma_m64k16": "wgmma_wait",
    "bulk_load_multicast": "mbarrier_wait, with the parity of its phase",
    "tensor_load_multicast": "mbarrier_wait, with the parity of its phase",
    "store_async": "mbarrier_wait, with the parity of its phase",
}
SUMS = {
    "left-under-way": "of a group that the wait leaves",
    "uncommitted": "in no group: it was never committed",
}
LOAD = (
    "wait for the mbarrier before the read; parity starts at 0 and alternates each time the buffer is used: "
    "(k / BUFFERS) & 1 for the k-th load"
)
STORE = (
    "bulk_wait_read<n>() by the thread that started the store, then __syncthreads(), before its source is "
    "written again or the block ends"
)
CURES = {
    "open": "close the group with its commit after the last copy, and wait for it; then __syncthreads(), "
    "before other threads read what this one copied",
    "cp_async": "wait before the read: cp_async_wait<n>() leaves the n latest groups under way, so n counts "
    "those committed after the one that is needed; then __syncthreads()",
    "bulk_load": LOAD,
    "bulk_store": STORE,
    "tensor_load": LOAD,
    "tensor_store": STORE,
    "bulk_load_multicast": LOAD,
    "tensor_load_multicast": LOAD,
    "store_async": LOAD,
    "wgmma_m64k16": "wgmma_commit() after the last product of a group, and wgmma_wait<n>(d) before d is read "
    "or b is written again: it leaves the n latest groups under way, so n counts those committed after the "
    "one that is needed",
    "fence": "each thread that wrote the source calls fence_proxy_async() after that, then __syncthreads(); "
    "the copy engine and the tensor cores do not see a thread's writes otherwise",
    "multiple": "round sizes and row pitches up to it and align the arrays (__align__); where an address "
    "follows the image's size, copy by smaller units",
    "deadlock": "compare the arrivals, the bytes and the parity with what the other threads do: "
    "each phase needs all of its arrivals, and exactly the bytes that it expects",
}


def explain_copy(f: Fault) -> Finding | None:
    """The finding, if the fault is one of a copy, a product, or an address or size that PTX does not take."""
    if f.kind == "misaligned" and f.type.startswith(("address ", "size ", "distance ")):
        what = f"the {f.type} is not a multiple of {f.nbytes} bytes: {f.offset} past one"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES["multiple"])
    if f.kind != "async":
        return None
    copy, state = f.type.split()
    index = f.array.index(f.offset)
    where = f"{index} of {f.array}"
    if state == "left":
        what = f"the block ends, and nobody has waited for the {copy} that reads from {where}"
        return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES[copy])
    if state == "unawaited":
        what = f"block {f.home} ends, and nobody there has waited for the {copy} that writes {where}"
        return Finding(f.kind, what, f.kernel, f.own, index, cure=CLUSTER_CURES["unawaited"])
    if state == "unfenced":
        what = f"{copy} from {where}, which was written with no fence_proxy_async() after it"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES["fence"])
    if state in SUMS:
        what = f"the sums that wgmma_wait is given are still under way: their product is {SUMS[state]}"
        return Finding(f.kind, what, f.kernel, f.own, "", f.other, CURES[copy])
    does = "fill" if f.other.write else "read"
    group = "its group was never committed" if state == "open" else f"no {WAITS[copy]} came between"
    verb = "write" if f.own.write else "read"
    what = f"{verb} of {where} while a {copy} that is to {does} it is under way: {group}"
    cure = CURES["open" if state == "open" and copy != "wgmma_m64k16" else copy]
    return Finding(f.kind, what, f.kernel, f.own, index, f.other, cure)


def explain_wait(text: str, source: Path, kernel: str, me: Party) -> Finding:
    """The finding for a block that is stuck, be it at an mbarrier or at another barrier."""
    finding = explain_stuck(text, source, kernel, me)
    if finding.kind == "divergence" and (match := CLUSTER_WAIT.search(text)):
        what = f"not all threads of the cluster come to {match[1]}: {match[2]} have not"
        finding = replace(finding, what=what, cure=WAIT_CURES["cluster barrier"])
    if "mbarrier_wait" not in text:
        return finding
    what = "a wait for an mbarrier has no end: all other threads wait too, or have returned"
    return replace(finding, kind="deadlock", what=what, cure=CURES["deadlock"])
