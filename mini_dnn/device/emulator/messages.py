"""The compiler's messages about a kernel file, without the file that is wrapped around it."""

from __future__ import annotations

import re
from pathlib import Path

PTX_HINT = (
    "\nThe emulator cannot run inline PTX. Use the wrappers of #include <mini_dnn/ptx.cuh>, which also work "
    "in it. For any other instruction, write a wrapper with a second body in plain C++ under #ifdef "
    "MINI_DNN_EMULATOR."
)

GROUPS = re.compile(r"cooperative_groups|'cg\b")
GROUPS_HINT = (
    "\nThe emulator supports these parts of cooperative groups: this_thread_block, tiled_partition (tiles of "
    "at most 32), coalesced_threads and this_grid without sync(); of these sync, thread_rank, size, "
    "num_threads, meta_group_rank, meta_group_size, shfl, shfl_up, shfl_down, shfl_xor, any, all, ballot and "
    "match_any; and reduce with plus, less, greater, bit_and, bit_or and bit_xor. Write the rest with these, "
    "or with __syncthreads() and __shfl_sync()."
)
# Names that begin in this way are CUDA's, so they are not the user's
FUNCTION = re.compile(r"error: '((?:__|cuda|tex[123]D|surf[123]D)\w*)' was not declared")
FUNCTION_HINT = (
    "\nThe emulator has the common functions of CUDA, but not all. If nvcc accepts {name}, write it with "
    "other functions, at least under #ifdef MINI_DNN_EMULATOR."
)
# A message: the line with its place, and what follows until the next such line.
MESSAGE = re.compile(r"^\S[^:\n]*:(?:\d+:\d+:)? .*\n?(?:(?!\S[^:\n]*:(?:\d+:\d+:)? ).*\n?)*", re.MULTILINE)
OPEN_BRACE = re.compile(r"error: expected '}'")


def explained(messages: str, wrapper: Path, source: Path) -> str:
    """Return the compiler's messages without the wrapper, with the file name that the user gave."""
    name = re.escape(str(wrapper))
    text = re.sub(rf"In file included from {name}:\d+:\n|cc1plus: note: disable pass .*\n", "", messages)
    text = re.sub(rf",\n +from {name}:\d+:", ":", text)
    text = _without(wrapper, text, source)
    text = text.replace(str(source.resolve()), str(source)).strip()
    text += PTX_HINT if re.search(r"\basm\b|Assembler messages", text) else ""
    unknown = FUNCTION.search(text)
    text += FUNCTION_HINT.format(name=unknown[1]) if unknown else ""
    explains_itself = "static assertion" in text or "error: #error" in text
    return text + (GROUPS_HINT if GROUPS.search(text) and not explains_itself else "")


def _without(wrapper: Path, messages: str, source: Path) -> str:
    """Return the messages about the user's files. Others follow from these, or from a missing brace.

    If no error is in the user's files, such as for a definition that does not compile, return all messages.
    """
    found = [match[0] for match in MESSAGE.finditer(messages)]
    own = [message for message in found if not message.startswith(f"{wrapper}:")]
    if any(OPEN_BRACE.search(message) for message in found if message not in own):
        own.insert(0, f"{source}: error: a '{{' has no matching '}}' before the end of the file\n")
    return "".join(own) if any("error: " in message for message in own) else messages
