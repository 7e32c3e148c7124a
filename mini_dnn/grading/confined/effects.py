"""What each instruction does to what is known of registers and of the stack, and what calls of hooks tell."""

from __future__ import annotations

from collections.abc import Sequence

from mini_dnn.grading.confined.disassembly import Instruction, Memory
from mini_dnn.grading.confined.image import CALLEE_SAVED, ORIGINS, THUNK, TOP, Image, kept_slots, signed
from mini_dnn.grading.confined.states import NAMES, State
from mini_dnn.grading.confined.values import (
    MASK,
    STACK,
    WORD,
    Value,
    is_bit,
    masked,
    negative,
    noted_bit,
    number,
    unknown,
    zero_extended,
)

CALLER_SAVED = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
SIZES = {"b": 1, "w": 2, "l": 4, "q": 8}
VECTORS = {"%xmm": 16, "%ymm": 32, "%zmm": 64}
RANGE = 1 << 62  # bytes: the limit for a hook that takes a number of bytes
MOST_REPEATED = 1 << 16  # bytes of one instruction; for more, the compiler calls a function
WORDS = ("threadIdx", "blockIdx", "blockDim", "gridDim", "_ZN8emulator13linear_threadE")
FS = unknown("segment", "fs")


def hook_bytes(name: str) -> int | None:
    """Return the number of bytes that the hook of this name checks, or None if it is not a hook."""
    name = name.removesuffix("@plt")
    if name in ("__tsan_read_range", "__tsan_write_range"):
        return RANGE
    if name in ("_ZN8emulator9note_readEPKvm", "_ZN8emulator10note_writeEPKvm"):
        return RANGE
    if name in ("__tsan_vptr_read", "__tsan_vptr_update"):
        return WORD
    for start in ("__tsan_read", "__tsan_write", "__tsan_unaligned_", "__tsan_volatile_"):
        if name.startswith(start):
            digits = "".join(c for c in name[len(start) :] if c.isdigit())
            return int(digits) if digits else None
    return None


def apply(one: Instruction, state: State, image: Image) -> None:
    """Update the state with the effect of an instruction."""
    name, operands = one.name, one.operands
    if name.startswith("call"):
        return _call(one, state, image)
    if name.startswith(("push", "pop")) and not name.startswith("popcnt"):
        return _push_or_pop(one, state)
    if name.startswith(("j", "nop", "cmp", "test", "prefetch", "endbr", "ret", "ud2")) or not operands:
        if name in ("cltq", "cqto", "cltd", "cwtl", "leave", "leaveq"):
            _without_operands(one, state)
        return None
    target = operands[-1]
    value = _value(one, state, image)
    if one.repeated.startswith("rep"):
        return _repeat(one, state)
    if isinstance(target, Memory):
        state.store(state.address(target), value or unknown("stored", one.at), stored_bytes(one))
    elif target.startswith("%"):
        state.write(target[1:], value or unknown("made", one.at, target))
    if name.startswith(("mul", "div", "imul", "idiv")) and len(operands) == 1:
        for register in ("rax", "rdx"):
            state.write(register, unknown("made", one.at, register))
    if name.startswith("xchg") or one.repeated:
        for register in ("rcx", "rsi", "rdi", *(o[1:] for o in operands if isinstance(o, str))):
            state.write(register, unknown("made", one.at, register))
    return None


def _value(one: Instruction, state: State, image: Image) -> Value | None:
    """Return the value that an instruction computes if addresses are computed like this, or None."""
    name, operands = one.name, one.operands
    known = [_operand(o, state, one, image) for o in operands]
    match name, known:
        case ("leaq", [_, _]):
            assert isinstance(operands[0], Memory), "it has no other"
            return state.address(operands[0])
        case (("movq" | "movl" | "movabsq"), [value, _]) if _is_whole(operands):
            return value
        case ("movslq", [value, _]) if is_bit(value):
            return zero_extended(value)
        case (("movslq" | "movzwl" | "movzbl" | "movswl" | "movsbl" | "movswq" | "movsbq"), [value, _]):
            return _made(name, [value])
        case ("addq", [one_, other]):
            return other.plus(one_)
        case ("subq", [one_, other]):
            return other.plus(one_, -1)
        case ("incq", [value]):
            return value.plus(number(1))
        case ("decq", [value]):
            return value.plus(number(-1))
        case (("shlq" | "salq"), [count, value]) if not count.terms and count.constant < 64:
            return number(0).plus(value, 1 << count.constant)
        case (("shlq" | "salq"), [value]):
            return value.plus(value)
        case ("andq", [mask, place]) if place.on_stack and not mask.terms:  # aligns the stack
            return _aligned(place, signed(mask.constant))
        case (("andl" | "andq"), [mask, value]) if mask is number(1):
            return noted_bit(_made(name, [mask, value]))
        case (("andl" | "andq"), [mask, value]) if not mask.terms:
            return masked(mask.constant, value, name == "andl") or _made(name, [mask, value])
        case (("negl" | "negq"), [value]):
            return negative(value, name == "negl") or _made(name, [value])
        case ("imulq", [factor, value, _]) if not factor.terms:
            return number(0).plus(value, factor.constant)
        case (("xorl" | "xorq"), [_, _]) if operands[0] == operands[1]:
            return number(0)
        case _ if name.startswith(("cmov", "set", "adc", "sbb", "xchg", "cmpxchg", "xadd")):
            return None
        case _ if any(isinstance(o, str) and o.startswith("%") and o[1:] not in NAMES for o in operands):
            return None
    if name == "leal" and isinstance(operands[0], Memory):
        return _made(name, [state.address(operands[0])])
    return _made(name, known)


def _aligned(place: Value, mask: int) -> Value:
    """Round a place on the stack down to a multiple."""
    value = unknown(STACK, place, mask)
    if place.terms == TOP.terms:
        ORIGINS[value.terms[0][0]] = signed(place.constant), -mask
    return value


def _made(name: str, values: Sequence[Value]) -> Value:
    return unknown("by", name, *values)


def repeated_bytes(one: Instruction, state: State) -> int:
    """Return how many bytes a repeated instruction accesses, as given by rcx."""
    count = state.registers["rcx"]
    return RANGE if count.terms else min(count.constant * SIZES.get(one.name[-1], 1), RANGE)


def stored_bytes(one: Instruction) -> int:
    """Return how many bytes an instruction writes. The result may be too large, but not too small."""
    if one.name.startswith("set"):
        return 1
    if one.name in ("movd", "vmovd", "vpextrd") or one.name.endswith(("ss", "sd")):  # one number of a vector
        return 8 if one.name.endswith("sd") else 4
    return SIZES.get(one.name[-1]) or _vector_bytes(one.operands)


def _vector_bytes(operands: Sequence[str | Memory]) -> int:
    """Return the size of the widest vector that an instruction names, or else the largest size."""
    known = [VECTORS[o[:4]] for o in operands if isinstance(o, str) and o[:4] in VECTORS]
    return max(known, default=64)


def _is_whole(operands: Sequence[str | Memory]) -> bool:
    """Whether all registers of a move are among those that are tracked."""
    return all(isinstance(o, Memory) or not o.startswith("%") or o[1:] in NAMES for o in operands)


def _operand(operand: str | Memory, state: State, one: Instruction, image: Image) -> Value:
    if isinstance(operand, Memory):
        if one.name.startswith("lea"):
            return number(0)
        place = state.address(operand)
        if operand.name.endswith("@Base") and not place.terms and operand.name[:-5] in WORDS:
            return unknown("word", operand.name)
        if place is FS:
            return unknown("thread")
        if place.on_stack:
            size = SIZES.get(one.name[-1], 8)
            return state.load(place, 4 if one.name == "movslq" else size, one.at)
        if image.is_constant(place.constant):
            return unknown("table", place)
        return unknown("loaded", one.at)
    if operand.startswith("$"):
        return number(int(operand[1:], 0) & MASK)
    return state.read(operand[1:])


def calls_kernel_code(one: Instruction) -> bool:
    """Whether a function of the kernel file may run. It may have a pointer to variables of this function."""
    elsewhere = one.target_name.endswith("@plt") or one.target_name.startswith(
        ("_ZN8emulator", "_ZZN8emulator")
    )
    return one.name.startswith("call") and (not elsewhere or one.target_name.startswith(THUNK))


def _call(one: Instruction, state: State, image: Image) -> None:
    name = one.target_name
    size = hook_bytes(name) if name.endswith("@plt") else None
    if size is not None:
        count = state.registers["rsi"]
        whole = min(count.constant, RANGE) if size == RANGE and not count.terms else size
        place = state.registers["rdi"], "write" in name or "update" in name
        state.told[place] = max(whole, state.told.get(place, 0))
        state.fresh += 1
    elif not name.startswith(("__ubsan_", "__tls_get_addr@plt", "__tsan_func_")):
        state.told.clear()
        state.fresh = 0
    array = state.registers["rdi"]
    left: tuple[str, ...] = CALLER_SAVED
    if calls_kernel_code(one):  # it may have a pointer to a variable of this function, and write past it
        keeps = image.is_kept_by(one, state)
        state.slots = kept_slots(state) if keeps else {}
        left += () if keeps else CALLEE_SAVED
    for register in left:
        state.write(register, unknown("left by", one.at, register))
    if name == "__tls_get_addr@plt":
        state.write("rax", unknown("shared", array))


def _repeat(one: Instruction, state: State) -> None:
    """Update the registers after clearing or copying a block: they hold its end if its size is known."""
    whole = repeated_bytes(one, state)
    if whole <= MOST_REPEATED:
        state.store(state.registers["rdi"], unknown("stored", one.at), whole)
    else:
        state.slots.clear()
    for register in ("rdi", "rsi") if one.name.startswith("movs") else ("rdi",):
        end = state.registers[register].plus(number(whole))
        state.write(register, end if whole <= MOST_REPEATED else unknown("made", one.at, register))
    for register in ("rcx",) if one.name.startswith(("stos", "movs")) else ("rcx", "rsi", "rax"):
        state.write(register, unknown("made", one.at, register))


def _push_or_pop(one: Instruction, state: State) -> None:
    top = state.registers["rsp"]
    if one.name.startswith("push"):
        place = top.plus(number(-8))
        operand = one.operands[0]
        value = state.read(operand[1:]) if isinstance(operand, str) and operand[0] == "%" else None
        state.registers["rsp"] = place
        state.store(place, value or unknown("pushed", one.at), 8)
        return
    value = state.load(top, 8, one.at)
    state.registers["rsp"] = top.plus(number(8))
    if isinstance(one.operands[0], str):
        state.write(one.operands[0][1:], value)


def _without_operands(one: Instruction, state: State) -> None:
    if one.name == "cltq":
        state.write("rax", _made("movslq", [state.half(state.registers["rax"])]))
    elif one.name == "cwtl":
        state.write("rax", unknown("made", one.at))
    elif one.name.startswith("leave"):
        frame = state.registers["rbp"]
        state.write("rbp", state.load(frame, 8, one.at))
        state.registers["rsp"] = frame.plus(number(8))
    else:
        state.write("rdx", unknown("made", one.at))
