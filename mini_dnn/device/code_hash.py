"""A hash of everything that a variant computes. Comments and white space do not change it."""

from __future__ import annotations

import ast
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from mini_dnn.device.sources import python_files, texts

# C++'s tokens, [lex.token] of the standard, as far as needed to find their ends: comments cannot start in
# strings
TOKEN = re.compile(
    r"""
      (?P<newline> \n )
    | (?P<blank> [^\S\n]+ | \\\r?\n | //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )
    | (?:u8|[uUL])? R"(?P<delimiter>[^()\\\s]*)\( .*? \)(?P=delimiter)"
    | \.?\d (?: [eEpP][+-] | '\w | [\w.] )*
    | \w+
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | <<=|>>=|<=>|\.\.\.|->\*|::|->|\+\+|--|<<|>>|&&|\|\||\#\#|\.\*|[-+*/%&|^<>=!]=
    | .
    """,
    re.DOTALL | re.VERBOSE,
)

# Code that keeps the hash of earlier code, under which its figures were measured. Both differ only for rows
# of more than 78 pixels, for which the earlier code gave wrong results. All other problems have the same
# launches of the same kernels, and no figure is of such rows.
AS_BEFORE = {  # by the first 16 digits of its own hash
    "b23ac4bfc54f04dc": "829b84618e76572b3f85aa2393b13c41f667c6079d1dc0db32b11f964481caf6",
    "2238707bbfd8ca86": "c59537aa417097ec7914aa45fb50606b71ec06f0fc8b2e5e8f981051255fc1b3",
    "1ac65c26fefa0c99": "0a500cddf5f72515a0745ead02fd587e0e3e49d66b0a7b285004a0a880594394",
    "8ab206568f44b667": "acc3fbd958e12ba2fb093df36c357c2899569be8091a65fba837231eb4305baa",
}


def code_hash(source: Path) -> str:
    """SHA-256 over the code of a kernel's files, of the ``variant.py`` next to it, and of its host half.

    Two variants with the same hash launch the same code in the same way. The hash does not depend on
    comments, docstrings, white space or the text of the idea. It does not depend on the module of mini_dnn
    from which something is imported, and lines may move to a part of their file (see `is_part`). Any other
    change changes the hash, such as that of a grid, a definition or a token of the kernel, unless
    `AS_BEFORE` names the code.
    """
    codes = [cpp_code(text) for text in texts(source)]
    descriptions = python_files(source.with_name("variant.py"))
    codes += [python_code(file.read_text(encoding="utf-8-sig")) for file in descriptions]
    found = hashlib.sha256("\0".join(codes).encode()).hexdigest()
    return AS_BEFORE.get(found[:16], found)


@cache
def cpp_code(text: str) -> str:
    """Return C++ code without comments, with one token or preprocessor directive per line."""
    lines = [""]
    directive, first_of_line = False, True
    for match in TOKEN.finditer(text + "\n"):
        token = match[0]
        if match["newline"]:
            lines[-1] = lines[-1].rstrip(" ")
            lines += [""] if lines[-1] else []
            directive = False
        elif match["blank"]:
            if directive and not lines[-1].endswith(" "):
                lines[-1] += " "  # required here: #define A (x) differs from #define A(x)
        elif directive:
            lines[-1] += token
        else:
            directive = token == "#" and first_of_line
            lines[-1:] = [token] if directive else [token, ""]
        first_of_line = match["newline"] is not None or (first_of_line and match["blank"] is not None)
    return "\n".join(lines)


@cache
def python_code(text: str) -> str:
    """Return the syntax tree of a ``variant.py`` without docstrings, imports of mini_dnn and ``idea=``.

    `ast.dump` is not used, because its output depends on the version of Python. Empty fields are left out.
    """
    return _dump(ast.parse(text))


def _dump(node: Any) -> str:
    if isinstance(node, ast.AST):
        fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
        return f"{type(node).__name__}({', '.join(f'{name}={_dump(value)}' for name, value in fields)})"
    if isinstance(node, list):
        return f"[{', '.join(_dump(item) for item in node if not _is_text(item))}]"
    return repr(node)


def _is_text(node: Any) -> bool:
    """Whether a node is only text for readers, or only says where in mini_dnn something is."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.ImportFrom):
        return _is_ours(node.module or "") and not _renames(node)
    if isinstance(node, ast.Import):
        return all(_is_ours(alias.name) for alias in node.names) and not _renames(node)
    return isinstance(node, ast.keyword) and node.arg == "idea"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "mini_dnn"


def _renames(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether something is imported under another name, so that its name in the code is not enough."""
    return any(alias.asname for alias in node.names)
