"""Findings of checked mode about asynchronous copies, products of a warpgroup and mbarriers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from mini_dnn.device.cures import CURES as WAIT_CURES
from mini_dnn.device.emulator.explain import explain_stuck, places_in
from mini_dnn.device.emulator.explain_cluster import CURES as CLUSTER_CURES
from mini_dnn.device.finding import Fault, Finding, Party

CLUSTER_WAIT = re.compile(r"wait at (cluster_\w+) \(.*?\), which (\d+ of the \d+) threads")
BYTES = re.compile(r"\(parity \d\), which expects (\d+) bytes and gets (?!\1\b)(\d+)")  # all have arrived
WAITS = {
    "cp_async": "cp_async_wait",
    "bulk_load": "mbarrier_wait for its phase",
    "bulk_store": "bulk_wait_read",
    "tensor_load": "mbarrier_wait for its phase",
    "tensor_store": "bulk_wait_read",
    "wgmma_m64k16": "wgmma_wait",
    "bulk_load_multicast": "mbarrier_wait for its phase",
    "tensor_load_multicast": "mbarrier_wait for its phase",
    "store_async": "mbarrier_wait for its phase",
}
SUMS = {
    "left-under-way": "in a group that the wait does not cover",
    "uncommitted": "in no group, because it was never committed",
}
LEFT = {"left": "", "left-open": ": its group was never committed"}
REGISTERS = {
    "first": "in a thread that has not called wgmma_fence()",
    "sums": "adds to sums that the thread has changed since its last wgmma_fence()",
    "reused": "overwrites a result of an earlier product, and the thread has not called wgmma_fence() since",
    "operand": "reads registers of a that the thread has changed since its last wgmma_fence()",
}
LOAD = (
    "wait for the mbarrier before the buffer is used; the parity starts at 0 and alternates with each use of "
    "the buffer: (k / BUFFERS) & 1 for the k-th load"
)
STORE = (
    "call bulk_wait_read<n>() in the thread that started the store, then __syncthreads(), before its "
    "source is "
    "written again or the block ends"
)
CURES = {
    "open": "commit the group after the last copy, and wait for it; then call __syncthreads() "
    "before other threads read the data that this thread copied",
    "cp_async": "wait before the read: cp_async_wait<n>() does not wait for the n latest groups, so n is the "
    "number of groups committed after the one that is needed; then call __syncthreads()",
    "bulk_load": LOAD,
    "bulk_store": STORE,
    "tensor_load": LOAD,
    "tensor_store": STORE,
    "bulk_load_multicast": LOAD,
    "tensor_load_multicast": LOAD,
    "store_async": LOAD,
    "wgmma_m64k16": "call wgmma_commit() after the last product of a group, and wgmma_wait<n>(d) before d is "
    "read or b is written again: it does not wait for the n latest groups, so n is the number of groups "
    "committed after the one that is needed",
    "fence": "call fence_proxy_async() in each thread that wrote the source, then __syncthreads(); "
    "otherwise, the copy engine and the tensor cores do not see the writes",
    "barrier": "call fence_proxy_async() or fence_mbarrier_init() after mbarrier_init, in the same thread; "
    "otherwise, the copy engine may not see that the mbarrier is initialised",
    "registers": "call wgmma_fence() in all threads of the warpgroup, after they have used the registers "
    "and before the first product that uses them",
    "multiple": "round sizes and row pitches up to this multiple and align the arrays (__align__); if an "
    "address depends on the size of the image, copy in smaller units",
    "unmade": "let one thread call mbarrier_init, and let all threads meet at a __syncthreads() before any "
    "of them uses the mbarrier; in a cluster, at a cluster_sync()",
    "deadlock": "compare the arrivals, the bytes and the parity with those of the other threads: "
    "each phase needs all of its arrivals, and exactly the bytes that it expects",
}


def explain_copy(f: Fault) -> Finding | None:
    """Return the finding if the fault is about a copy, a product, or an address or size that PTX forbids."""
    if f.kind == "misaligned" and f.type.startswith(("address ", "size ", "distance ")):
        what = f"the {f.type} is not a multiple of {f.nbytes} bytes: {f.offset} past one"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES["multiple"])
    if f.kind != "async":
        return None
    copy, state = f.type.split()
    index = f.array.index(f.offset)
    where = f"{index} of {f.array}"
    if state in LEFT:
        what = f"the block ends without waiting for the {copy} that reads from {where}{LEFT[state]}"
        cure = CURES["open" if state == "left-open" else copy]
        return Finding(f.kind, what, f.kernel, f.own, index, cure=cure)
    if state == "unawaited":
        what = f"block {f.home} ends without waiting for the {copy} that writes {where}"
        return Finding(f.kind, what, f.kernel, f.own, index, cure=CLUSTER_CURES["unawaited"])
    if state == "unfenced":
        what = f"{copy} from {where}, which was written without a fence_proxy_async() afterwards"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES["fence"])
    if state == "barrier":
        what = f"{copy} for the mbarrier {where}, which was initialised without a fence afterwards"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES["barrier"])
    if state in REGISTERS:
        return Finding(f.kind, f"{copy} {REGISTERS[state]}", f.kernel, f.own, "", cure=CURES["registers"])
    if state in SUMS:
        what = f"the sums passed to wgmma_wait are still in flight: their product is {SUMS[state]}"
        return Finding(f.kind, what, f.kernel, f.own, "", f.other, CURES[copy])
    if state == "landed":
        verb = "written" if f.own.write else "read"
        what = f"{where} is {verb} by a thread that has not waited for the {copy} that filled it"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES[copy])
    does = "fill" if f.other.write else "read"
    group = "its group was never committed" if state == "open" else f"there is no {WAITS[copy]} between them"
    verb = "write" if f.own.write else "read"
    what = f"{verb} of {where} while a {copy} that will {does} it is in flight: {group}"
    cure = CURES["open" if state == "open" and copy != "wgmma_m64k16" else copy]
    return Finding(f.kind, what, f.kernel, f.own, index, f.other, cure)


def cure_of_fault(text: str) -> str:
    """Return the usual fix for a fault of which the runtime says this."""
    if "initialised" in text:
        return CURES["unmade"]
    return CURES["deadlock"] if "mbarrier_arrive" in text else WAIT_CURES["fault"]


def explain_wait(text: str, source: Path, kernel: str, me: Party) -> Finding:
    """Return the finding for a block that is stuck, at an mbarrier or at another barrier."""
    finding = explain_stuck(text, source, kernel, me)
    if finding.kind == "divergence" and (match := CLUSTER_WAIT.search(text)):
        what = f"not all threads of the cluster reach {match[1]}: {match[2]} have not"
        finding = replace(finding, what=what, cure=WAIT_CURES["cluster barrier"])
    if "mbarrier_wait" not in text:
        return finding
    what = "a wait for an mbarrier never ends: all other threads are also waiting, or have returned"
    wrong = next((note for note in finding.notes if BYTES.search(note)), "")
    if match := BYTES.search(wrong):  # others may wait because of this one
        what = (
            f"a wait for an mbarrier never ends: it expects {match[1]} bytes, and its copies bring {match[2]}"
        )
        place = next(iter(places_in([wrong], source)), finding.place)
        finding = replace(finding, own=Party(place, me.block, ()), other=None)
    return replace(finding, kind="deadlock", what=what, cure=CURES["deadlock"])
