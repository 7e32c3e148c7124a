"""Facts about a compiled library that all of its functions share, and the protected slots of a stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mini_dnn.grading.confined.disassembly import Instruction
from mini_dnn.grading.confined.states import State
from mini_dnn.grading.confined.values import MASK, STACK, WORD, Unknown, Value, unknown

CALLEE_SAVED = ("rbx", "r12", "r13", "r14", "r15")
THUNK = "__x86_indirect_thunk_"  # calls through pointers go through a function of this name
PLACE = unknown("start", "rdi")
TOP = unknown(STACK, "start")  # the stack at the beginning of a function; the return address is there
SAVED = tuple(unknown("start", name) for name in CALLEE_SAVED)
# The origins of places on the stack: a place is a number of bytes from the beginning of the stack, or from
# that address after alignment.
ORIGINS: dict[Unknown, tuple[int, int]] = {TOP.terms[0][0]: (0, 1)}


@dataclass(frozen=True)
class Image:
    """Facts about the library other than its code: where its constants are, and where functions begin."""

    constants: Sequence[tuple[int, int]]  # ranges of addresses: from, to
    functions: frozenset[int]  # addresses at which functions begin
    taken: frozenset[int] = frozenset()  # functions that a pointer may lead to
    careless: frozenset[int] = frozenset()  # functions that may leave other values than they found
    # Bytes of the caller's stack that each function writes
    above: Mapping[int, int] = field(default_factory=dict)

    def called(self, one: Instruction) -> frozenset[int]:
        """Return the functions that an instruction may call or jump to."""
        if one.target is None:
            return frozenset()
        return self.taken if one.target_name.startswith(THUNK) else frozenset([one.target])

    def is_kept_by(self, one: Instruction, state: State) -> bool:
        """Whether the called function of the kernel file leaves saved registers and kept slots unchanged."""
        called, top = self.called(one), state.registers["rsp"]
        most = max((self.above.get(at, 0) for at in called), default=0)
        first, origin = signed(top.constant), top.terms[0][0]
        reaches_over = most and origin is not TOP.terms[0][0] and first + most > 0
        if self.careless & called or reaches_over:
            return False
        kept = [at for other, at in kept_slots(state) if other is origin]
        return not any(first < at + WORD and at < first + most for at in kept)

    def is_constant(self, place: int) -> bool:
        """Whether nobody can write to a place."""
        return any(first <= place < last for first, last in self.constants)


def signed(constant: int) -> int:
    """A constant as a signed distance."""
    return constant - (MASK + 1) if constant >> 63 else constant


def kept_slots(state: State) -> dict[tuple[Unknown, int], tuple[Value, int]]:
    """Return the stack slots that the runtime protects: saved registers, and the place of a result."""
    return {
        at: (value, size)
        for at, (value, size) in state.slots.items()
        if at[0] in ORIGINS and size == WORD and (value is PLACE or value in SAVED)
    }
