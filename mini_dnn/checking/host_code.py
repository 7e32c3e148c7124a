"""Find host code in kernels if no CUDA compiler reports it: g++ does not know the difference.

Only certain mistakes are reported. Only names are compared: of several functions with the same name, one with
``__device__`` makes all of them valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from mini_dnn.checking.tokens import Token, closing, tokens_of

ON_GPU = {"__device__", "__global__", "__constant__", "__shared__", "__managed__"}
NO_TYPES = {"return", "else", "case", "throw", "goto", "new", "delete", "sizeof", "typename", "do"}
TYPES = {
    "auto",
    "bool",
    "char",
    "short",
    "int",
    "long",
    "unsigned",
    "signed",
    "float",
    "double",
    "half",
    "const",
}
NO_VARIABLES = {
    "using",
    "typedef",
    "template",
    "static_assert",
    "extern",
    "friend",
    "operator",
    "asm",
    "enum",
    "namespace",
}
BEFORE_PARENTHESES = ("__launch_bounds__", "__attribute__", "__align__", "alignas", "decltype", "noexcept")
# Names of the C and C++ libraries that CUDA lacks. It has math, printf, malloc, assert and clock.
HOST_LIBRARY = {"rand", "srand", "drand48", "exit", "fprintf", "sprintf", "puts", "getenv", "fopen", "system"}
HOST_STD = {
    "max",
    "min",
    "swap",
    "clamp",
    "sort",
    "fill",
    "accumulate",
    "copy",
    "vector",
    "string",
    "cout",
    "cerr",
}


@dataclass(frozen=True)
class Use:
    """A host name in code for a GPU."""

    name: str
    kernel: str  # or ``__device__`` function
    at: Token
    declared: Token | None  # None if it is in the C or C++ library
    is_call: bool


@dataclass(eq=False)
class _Function:
    name: Token
    on_gpu: bool
    is_kernel: bool
    is_constexpr: bool
    is_member: bool
    head: list[Token]
    body: list[Token]


@dataclass
class _File:
    functions: list[_Function] = field(default_factory=list)
    variables: dict[str, Token] = field(default_factory=dict)  # of the host
    on_gpu: set[str] = field(default_factory=set)  # functions and variables
    constants: dict[str, Token] = field(default_factory=dict)  # __constant__
    bounds: dict[str, tuple[int, Token]] = field(default_factory=dict)  # __launch_bounds__ of kernels


@dataclass(frozen=True)
class Declared:
    """The declarations in a preprocessed kernel file that still contains the words of CUDA C++."""

    uses: tuple[Use, ...]
    host: dict[str, Token]  # functions and variables of the host
    constants: dict[str, Token]
    bounds: dict[str, tuple[int, Token]]


def read(preprocessed: str) -> Declared:
    """Parse a kernel file in which ``__device__`` and similar words are not replaced."""
    file = _File()
    _declarations(tokens_of(preprocessed), file, in_class=False)
    host = {f.name.text: f.name for f in file.functions if not f.on_gpu and f.name.text not in file.on_gpu}
    return Declared(tuple(_uses(file)), {**host, **file.variables}, file.constants, file.bounds)


def _declarations(tokens: Sequence[Token], file: _File, in_class: bool) -> None:
    """Parse the functions and variables of a namespace or class."""
    chunk: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.text == "{":
            end = closing(tokens, at)
            words = {t.text for t in chunk}
            opens = _first_call(chunk)
            if "namespace" in words or [t.text for t in chunk] == ["extern", '"C"']:
                _declarations(tokens[at + 1 : end], file, in_class=False)
                chunk = []
            elif opens is not None and not _assigned(chunk[:opens]):
                _function(chunk, opens, list(tokens[at + 1 : end]), file, in_class)
                chunk = []
            elif words & {"struct", "class", "union"} and not _assigned(chunk):
                _declarations(tokens[at + 1 : end], file, in_class=True)
            else:
                chunk = [*chunk, token]  # of an initial value, or of an enum
            at = end
        elif token.text == ";":
            _variable(chunk, file, in_class)
            chunk = []
        elif token.text == ":" and chunk and chunk[-1].text in ("public", "private", "protected"):
            chunk = []
        else:
            chunk.append(token)
        at += 1


def _first_call(chunk: Sequence[Token]) -> int | None:
    """Return where the parameters of a function begin."""
    at = 0
    while at < len(chunk):
        if chunk[at].text == "(":
            before = chunk[at - 1].text if at else ""
            if before not in (*BEFORE_PARENTHESES, "("):
                return at if re.match(r"[A-Za-z_]", before) else None
            at = closing(chunk, at)
        at += 1
    return None


def _assigned(chunk: Sequence[Token]) -> bool:
    return any(token.text == "=" for token in chunk)


def _function(chunk: list[Token], opens: int, body: list[Token], file: _File, in_class: bool) -> None:
    words = {token.text for token in chunk[:opens]}
    name = chunk[opens - 1]
    on_gpu = bool(words & ON_GPU)
    if "operator" in words or (in_class and opens == 1):  # an operator or a constructor
        on_gpu = True  # its callers cannot be found by name
    function = _Function(
        name, on_gpu, "__global__" in words, "constexpr" in words, in_class, chunk[opens:], body
    )
    file.functions.append(function)
    if on_gpu:
        file.on_gpu.add(name.text)
    if function.is_kernel:
        _bounds(chunk[:opens], name, file)


def _bounds(head: Sequence[Token], name: Token, file: _File) -> None:
    """The largest block size that a kernel declares, if it is a number or a product."""
    at = next((i for i, token in enumerate(head) if token.text == "__launch_bounds__"), None)
    if at is None or at + 1 >= len(head) or head[at + 1].text != "(":
        return
    inside = [token.text for token in head[at + 2 : closing(head, at + 1)]]
    first = inside[: inside.index(",")] if "," in inside else inside
    factors, signs = [text.rstrip("uU") for text in first[::2]], first[1::2]
    if len(first) % 2 and all(text.isdecimal() for text in factors) and set(signs) <= {"*"}:
        file.bounds[name.text] = prod(map(int, factors)), head[at]


def _variable(chunk: list[Token], file: _File, in_class: bool) -> None:
    words = {token.text for token in chunk}
    if in_class or not chunk or words & NO_VARIABLES:
        return
    ends = next((i for i, token in enumerate(chunk) if token.text in ("=", "{", "[")), len(chunk))
    opens = _first_call(chunk[:ends])
    if opens is not None:  # a function without a body
        if words & ON_GPU:
            file.on_gpu.add(chunk[opens - 1].text)
        return
    names = [token for token in chunk[:ends] if re.match(r"[A-Za-z_]", token.text)]
    if len(names) < 2:
        return
    name = names[-1]
    if words & ON_GPU:
        file.on_gpu.add(name.text)
        if "__constant__" in words:
            file.constants[name.text] = name
        return
    is_array = ends < len(chunk) and chunk[ends].text == "["
    is_pointer = any(token.text == "*" for token in chunk[:ends])
    known = {"const", "constexpr"} & {token.text for token in chunk[:ends]}
    if known and (is_pointer or not is_array or "constexpr" in known):
        return  # the compiler replaces it by its value
    if not words & {"struct", "class", "union"}:
        file.variables[name.text] = name


def _uses(file: _File) -> Iterator[Use]:
    """Yield each host name once, where code that kernels reach first uses it."""
    own = {function.name.text for function in file.functions}
    host = {f.name.text: f for f in file.functions if not f.on_gpu and f.name.text not in file.on_gpu}
    told: set[str] = set()
    for function in _reached(file):
        local = _local_names(function)
        body = function.body
        for at, token in enumerate(body):
            name = token.text
            if name in told or not re.match(r"[A-Za-z_]", name):
                continue
            before = body[at - 1].text if at else ""
            use = None
            if name in host and name not in local and _is_call(body, at):
                callee = host[name]
                by_member = before in (".", "->")
                if by_member == callee.is_member and (not callee.is_constexpr or _varies(body, at, function)):
                    use = Use(name, function.name.text, token, callee.name, is_call=True)
            elif (
                name in file.variables and name not in local | file.on_gpu and before not in (".", "->", "::")
            ):
                use = Use(name, function.name.text, token, file.variables[name], is_call=False)
            elif name in HOST_LIBRARY and name not in own | local and _is_call(body, at):
                if before not in (".", "->"):
                    use = Use(name, function.name.text, token, None, is_call=True)
            elif name in HOST_STD and before == "::" and at > 1 and body[at - 2].text == "std":
                use = Use(f"std::{name}", function.name.text, token, None, is_call=True)
            if use:
                told.add(name)
                yield use


def _reached(file: _File) -> list[_Function]:
    """The kernels, and the ``__device__`` functions that they call, found by name."""
    reached = [function for function in file.functions if function.is_kernel]
    for function in reached:  # the list grows during the loop
        words = {token.text for token in function.body}
        reached += [f for f in file.functions if f.on_gpu and f.name.text in words and f not in reached]
    return reached


def _local_names(function: _Function) -> set[str]:
    """The names that a function declares: its parameters and variables."""
    found = set()
    tokens = [*function.head, *function.body]
    for at in range(1, len(tokens)):
        name, before = tokens[at].text, tokens[at - 1].text
        if not re.match(r"[A-Za-z_]", name):
            continue
        after_type = re.match(r"[A-Za-z_]", before) and before not in NO_TYPES
        pointed = before in ("*", "&", ">", ",") and at > 1
        typed = pointed and (at < len(function.head) or tokens[at - 2].text in TYPES or before == ">")
        if after_type or typed:
            found.add(name)
    return found


def _is_call(body: Sequence[Token], at: int) -> bool:
    after = body[at + 1].text if at + 1 < len(body) else ""
    if after != "<":
        return after == "("
    close = next((i for i in range(at + 2, min(at + 12, len(body))) if body[i].text == ">"), None)
    return close is not None and close + 1 < len(body) and body[close + 1].text == "("


def _varies(body: Sequence[Token], at: int, function: _Function) -> bool:
    """Whether the arguments of a call are only known at run time: a parameter, or a thread index."""
    opens = next(i for i in range(at, len(body)) if body[i].text == "(")
    words = {token.text for token in body[opens : closing(body, opens)]}
    changing = {"threadIdx", "blockIdx", "blockDim", "gridDim"} | {t.text for t in function.head}
    return bool({word for word in words if re.match(r"[A-Za-z_]", word)} & changing)
