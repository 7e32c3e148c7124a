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
FUNCTION = re.compile(
    r"error: '((?:__|cudaGridDependency|cudaTrigger|tex[123]D|surf[123]D)\w*)' was not declared"
)
FUNCTION_HINT = (
    "\nThe emulator has the common functions of CUDA, but not all. If nvcc accepts {name}, write it with "
    "other functions, at least under #ifdef MINI_DNN_EMULATOR."
)
HEADER = re.compile(r"fatal error: (?!cooperative_groups)(\S+): No such file.*\n.*#\s*include\s*<")
HEADER_HINT = (
    "\nThe emulator has no <{name}>. A kernel can include cuda_fp16.h, cuda_bf16.h, mma.h, cuda_pipeline.h, "
    "cooperative_groups.h, mini_dnn/ptx.cuh and headers of the C++ library. Write what you need with these, "
    "or set needs_gpu in variant.py to the reason why the kernel needs a GPU."
)
# Functions that kernels can call, too, begin in another way
HOST = re.compile(r"(<<<|(?<=error: ')cuda(?!GridDependency|Trigger)[A-Z]\w*(?=' was not declared))")
HOST_HINT = (
    "\n{name} is host code. A kernel file has only kernels and the functions that they call; the plan in "
    "variant.py allocates, copies and launches. Remove main() and all calls of CUDA's runtime from the file. "
    "CONTRIBUTING.md shows an example of both files."
)
# Names that CUDA declares in a header only
NAMES = {
    "cuda_fp16.h": r"half2?|__half2?|__\w+2half\w*|__half\w*2\w+",
    "cuda_bf16.h": r"(?:__)?nv_bfloat162?|__\w*bfloat16\w*",
    "mma.h": "nvcuda",
    "cooperative_groups.h": "cooperative_groups",
    "cuda_pipeline.h": r"__pipeline_\w+",
    "math_constants.h": "CUDART_(?:INF|NAN|PI)_F",
    "mini_dnn/ptx.cuh": "ptx",
}
NAME = re.compile(
    rf"error: '(?:{'|'.join(f'({names})' for names in NAMES.values())})' "
    r"(?:(?:was not|has not been) declared|does not name a type|is not a namespace-name)"
)
NAME_HINT = "\n{name} needs #include <{header}>."
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
    unknown = [NAME_HINT.format(name=name, header=header) for header, name in _missing_headers(text).items()]
    if unknown:  # the rest may follow from these
        return text + "".join(unknown)
    named = ((FUNCTION, FUNCTION_HINT), (HEADER, HEADER_HINT), (HOST, HOST_HINT))
    hints = [hint.format(name=match[1]) for word, hint in named if (match := word.search(text))]
    explains_itself = "static assertion" in text or "error: #error" in text
    hints += [GROUPS_HINT] if GROUPS.search(text) and not explains_itself else []
    return text + "".join(hints)


def _missing_headers(messages: str) -> dict[str, str]:
    """Return the headers that a file needs, each with the first name that needs it."""
    found = list(NAME.finditer(messages))
    first = {header: next((m[i] for m in found if m[i]), "") for i, header in enumerate(NAMES, 1)}
    return {header: name for header, name in first.items() if name}


def _without(wrapper: Path, messages: str, source: Path) -> str:
    """Return the messages about the user's files. Others follow from these, or from a missing brace.

    If no error is in the user's files, such as for a definition that does not compile, return all messages.
    """
    found = [match[0] for match in MESSAGE.finditer(messages)]
    own = [message for message in found if not message.startswith(f"{wrapper}:")]
    if any(OPEN_BRACE.search(message) for message in found if message not in own):
        own.insert(0, f"{source}: error: a '{{' has no matching '}}' before the end of the file\n")
    return "".join(own) if any("error: " in message for message in own) else messages
