"""Decide from the machine code whether checked mode is told of each memory access of a compiled kernel.

The compiler inserts the call of a hook before each load and store that another thread could notice. `State`
tracks registers through a function. This finds any access to an address of which no hook was told, whatever
the source code looks like. Some accesses need no hook: those to the stack, to constants of the library, and
to words of the runtime such as ``threadIdx``, which are read-only.
"""

from __future__ import annotations

from collections.abc import Callable

from mini_dnn.device.emulator.compiler import MAX_FRAME_BYTES
from mini_dnn.grading.confined.disassembly import Function, Instruction, Memory
from mini_dnn.grading.confined.effects import FS, apply, calls_kernel_code, repeated_bytes, stored_bytes
from mini_dnn.grading.confined.followed import Call, Followed, Unseen
from mini_dnn.grading.confined.image import CALLEE_SAVED, PLACE, SAVED, THUNK, TOP, Image, kept_slots
from mini_dnn.grading.confined.states import REGISTERS, State, merged
from mini_dnn.grading.confined.values import MASK, Value, number, unknown

NEAR = 24  # the most instructions between a load and the call of its hook
VISITS = 40  # for each place where paths join
WORD_BYTES = 16  # the largest size of a word of the thread or the segment
NO_ACCESS = ("lea", "nop", "prefetch", "endbr", "ud2")
READS_ONLY = (
    "cmp",
    "test",
    "bt",
    "ucomis",
    "vucomis",
    "comis",
    "vcomis",
    "push",
    "fld",
    "fild",
    "vptest",
    "div",
    "idiv",
    "mul",
    "imul",
)
UNSET = (
    "$0x7fa5a5a5",
    "$0x7da5",
)  # tiles mark unset values with these numbers, which cannot make a result right
ENDS = ("ret", "retq", "ud2", "hlt")
RETURN_BYTES = 8
FRAME = TOP.plus(number(-8))  # what rbp holds in a function that calls others; stack.cpp follows these frames
# The most bytes of a function's frame, including saved registers. If no hook in the function checks the
# depth of the stack, the limit is smaller than MARGIN in stack.cpp.
MOST_FRAME, MOST_UNSEEN_FRAME = MAX_FRAME_BYTES + 1024, 4096
# Kinds of unknown values that an address may have if it was kept over a call of a function of the kernel file
# in a place that the runtime does not protect.
KEPT = ("left by", "slot", "joint")
NEVER_RETURN = (
    "__stack_chk_fail@plt",
    "_Unwind_Resume@plt",
    "_ZSt9terminatev@plt",
    "_ZN8emulator4failEPKcz@plt",
    "_ZN8emulator7fail_atEPKcSt15source_locationS1_z@plt",
    "_ZN8emulator14fail_assertionEPKcS1_j@plt",
    "_ZN8emulator9fail_warpEPKcz@plt",
    "__ubsan_handle_builtin_unreachable@plt",
    "__ubsan_handle_missing_return@plt",
)
MAY_END = (*NEVER_RETURN, "__cxa_", "_ZN8emulator", "__ubsan_")  # some of these functions do not return


def follow(function: Function, image: Image) -> Followed:
    """Follow a function from its beginning to all of its ends."""
    return _Follower(function, image).found()


class _Follower:
    def __init__(self, function: Function, image: Image) -> None:
        self._function, self._image = function, image
        self._code = {one.at: i for i, one in enumerate(function.code)}
        work = [one for one in function.code if not one.name.startswith(("nop", "xchg"))]
        self._last = work[-1] if work else None
        self._starts = {one.target for one in function.code if one.target in self._code}
        self._instrumented = any(one.target_name == "__tsan_func_entry@plt" for one in function.code)
        self._calls = any(calls_kernel_code(one) for one in function.code)
        self._found = Followed()

    def found(self) -> Followed:
        """Follow all paths through the function until nothing new is learned, then judge each access."""
        code = self._function.code
        if not code:
            return self._found
        start = {name: unknown("start", name) for name in REGISTERS} | {"rsp": TOP}
        known = {code[0].at: State(start)}
        left, most = [code[0].at], VISITS * (1 + len(self._starts))
        while left:
            block, most = min(left), most - 1
            left.remove(block)
            if most < 0:
                self._found.unseen = [Unseen(self._function.name, block, "code too tangled to follow")]
                return self._found
            for target, state in self._run(block, known[block].copy(), lambda one, state: None):
                before = known.get(target)
                after = state if before is None else merged(before, state, target)
                if after is not before:
                    known[target] = after
                    if target not in left:
                        left.append(target)
        places: dict[int, Unseen] = {}

        def look(one: Instruction, state: State) -> None:
            self._note_kept(one, state)
            if not self._allowed(one, state):
                found = Unseen(self._function.name, one.at, one.text, self._is_kept(one, state))
                places.setdefault(one.at, found)

        for _ in range(2):  # a value that is read from a result may be written further on
            places.clear()
            for block, state in known.items():
                self._run(block, state.copy(), look)
            if not places:
                break
        self._found.unseen = [places[at] for at in sorted(places)]
        return self._found

    def _run(
        self, block: int, state: State, look: Callable[[Instruction, State], None]
    ) -> list[tuple[int, State]]:
        """Follow the code from one place where paths join to the next ones.

        Return these, with the known state.
        """
        code, i = self._function.code, self._code[block]
        out: list[tuple[int, State]] = []
        while True:
            one = code[i]
            look(one, state)
            apply(one, state, self._image)
            if one.name.startswith("j") and one.target in self._code:
                out.append((one.target, state.copy()))
            i += 1
            if one.name in ENDS or one.name.startswith("jmp") or i == len(code):
                return out
            if one.name.startswith("call") and one.target_name in NEVER_RETURN:
                return out
            if code[i].at in self._starts:
                return [*out, (code[i].at, state)]

    def _note_kept(self, one: Instruction, state: State) -> None:
        """Note what the runtime must protect while other code runs, and whether registers are restored."""
        leaves = one.name.startswith("ret") or (
            one.name.startswith("jmp") and one.target not in self._code and bool(one.target_name)
        )
        if leaves and [state.registers[name] for name in CALLEE_SAVED] != list(SAVED):
            self._found.is_careless = True
        if one.name.startswith("call"):
            for at, (value, _) in kept_slots(state).items():
                (self._found.places if value is PLACE else self._found.saved).add(at)

    def _allowed(self, one: Instruction, state: State) -> bool:
        if one is self._last and not self._ends(one):
            return False  # the function behind it, whichever it is, would run next
        if one.name.startswith("ret"):
            return state.registers["rsp"] is TOP
        if not self._is_in_its_frame(one, state):
            return False
        if one.name.startswith(("(bad)", ".", "sys")) or one.name in ("int", "int3", "hlt"):
            return False
        if one.name.startswith(("call", "j")):
            return self._goes_to_a_function(one, state)
        if one.name.startswith(NO_ACCESS):
            return True
        for i, operand in enumerate(one.operands):
            if isinstance(operand, Memory) and not self._place(one, i, operand, state):
                return False
        return True

    def _is_in_its_frame(self, one: Instruction, state: State) -> bool:
        """Whether the stack pointer is where the compiler has put it, so that frames can be followed."""
        top = state.registers["rsp"]
        most = MOST_FRAME if self._instrumented else MOST_UNSEEN_FRAME
        if len(top.terms) != 1 or not top.on_stack or -top.constant & MASK > most:
            return False
        leaves = one.name.startswith("jmp") and one.target not in self._code
        if one.name.startswith("call") and one.target_name not in NEVER_RETURN:
            return state.registers["rbp"] is FRAME and (self._instrumented or not calls_kernel_code(one))
        return not leaves or top is TOP

    def _goes_to_a_function(self, one: Instruction, state: State) -> bool:
        """Whether a jump stays in the function or leads to the beginning of one. `THUNK` checks pointers."""
        if one.target is None or one.target in self._code:
            return one.target is not None
        if not one.target_name.startswith(THUNK):
            self._found.calls[one.at] = Call(one, one.target, state.registers["rdi"], state.registers["rsp"])
        return one.target in self._image.functions

    def _place(self, one: Instruction, i: int, operand: Memory, state: State) -> bool:
        """Whether an access of this operand needs no hook, or a hook was told of it."""
        place = state.address(operand)
        writes = i == len(one.operands) - 1 and not one.name.startswith(READS_ONLY)
        if writes and _is_return_address(place):
            return False
        if operand.index.startswith(("x", "y", "z")) or operand.base == "?":  # gathers, and unknown operands
            return False
        if place.on_stack:
            if writes and _is_above(place):
                self._found.is_careless |= place.terms != TOP.terms
                self._found.above = max(self._found.above, place.constant + stored_bytes(one) - RETURN_BYTES)
            return True
        if writes and one.name.startswith("mov") and one.operands[0] in UNSET:
            return True
        count = repeated_bytes(one, state) if one.repeated.startswith("rep") else 1
        if state.was_told(place, writes, count):
            return True
        if writes and self._is_of_result(one, place, count):
            return True
        if self._instrumented and state.fresh and not one.repeated and not self._is_kept(one, state):
            state.fresh -= 1  # the access may compute the address in a different way than the hook
            return True
        if (
            writes
            and self._instrumented
            and not self._calls
            and one.name.startswith("vmov")
            and _is_from_slot(place)
        ):
            # g++ fills local arrays with the widest vectors, and keeps their address on the stack
            return True
        if writes:
            return False
        if not place.terms:
            return self._image.is_constant(place.constant)
        if place.terms == FS.terms:
            return place.constant in (0, 0x28)  # the thread's own address, and the stack's guard
        kinds = [u.kind for u, _ in place.terms]
        if "word" in kinds:
            return (
                len(kinds) == 2 and ("thread" in kinds or "segment" in kinds) and place.constant < WORD_BYTES
            )
        if self._image.is_constant(place.constant) and not one.repeated:
            return True
        if self._instrumented and self._is_passed(one):
            return True
        return self._found.returned > 0 and self._is_of_result(one, place, count)

    def _is_of_result(self, one: Instruction, place: Value, count: int) -> bool:
        """Whether the access is to a structure that the function returns.

        Whether its callers provide enough room is checked separately.
        """
        end = place.constant + max(count, stored_bytes(one))
        if place.terms != PLACE.terms or end > MOST_FRAME:
            return False
        self._found.returned = max(self._found.returned, end)
        return True

    def _is_kept(self, one: Instruction, state: State) -> bool:
        """Whether a store uses an address of which a hook was told before a call of the kernel's code."""
        target = one.operands[-1] if one.operands else ""
        if (
            not self._calls
            or not isinstance(target, Memory)
            or one.name.startswith((*READS_ONLY, *NO_ACCESS))
        ):
            return False
        return [u.kind in KEPT for u, times in state.address(target).terms if times == 1] == [True]

    def _ends(self, one: Instruction) -> bool:
        """Whether no instruction follows this one."""
        if one.name.startswith("call"):
            return one.target_name.startswith(MAY_END)
        return one.name in ENDS or one.name.startswith("jmp")

    def _is_passed(self, one: Instruction) -> bool:
        """Whether it loads part of a structure that the next call passes.

        g++ inserts no hook for such loads.
        """
        code, i = self._function.code, self._code[one.at]
        if not one.name.startswith(("mov", "vmov")) or isinstance(one.operands[-1], Memory):
            return False
        after = code[i + 1 : i + 1 + NEAR]
        calls = [other for other in after if other.name.startswith(("call", "j", "ret"))]
        return bool(calls) and calls[0].name.startswith("call") and calls[0].target_name.count("@") == 0


def _is_return_address(place: Value) -> bool:
    return place.terms == TOP.terms and (place.constant + RETURN_BYTES - 1) & MASK < 2 * RETURN_BYTES - 1


def _is_above(place: Value) -> bool:
    """Whether it is in the caller's part of the stack, where arguments without a register are."""
    return TOP.terms[0] in place.terms and RETURN_BYTES <= place.constant <= MASK >> 1


def _is_from_slot(place: Value) -> bool:
    """Whether its value was kept in a stack slot whose content is no longer known."""
    return len(place.terms) == 1 and place.terms[0][0].kind == "slot" and place.terms[0][1] == 1
