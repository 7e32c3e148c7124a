"""One hash over what a variant computes: neither comments nor white space change it."""

from __future__ import annotations

import ast
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from mini_dnn.device.sources import python_files, texts

# C++'s tokens, [lex.token] of the standard, as far as their ends must be known: no comment starts in a string
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


def code_hash(source: Path) -> str:
    """SHA-256 over the code of a kernel's files, of the ``variant.py`` beside it and of its host half.

    Two variants with one hash launch the same code in the same way. A change of comments, docstrings, white
    space or the idea's text leaves the hash as it is, and so do another place of what is imported from
    mini_dnn and lines that move to a part of their file (see `is_part`); any other change of a grid, a
    definition or a token of the kernel does not.
    """
    codes = [cpp_code(text) for text in texts(source)]
    descriptions = python_files(source.with_name("variant.py"))
    codes += [python_code(file.read_text(encoding="utf-8")) for file in descriptions]
    return hashlib.sha256("\0".join(codes).encode()).hexdigest()


@cache
def cpp_code(text: str) -> str:
    """C++ without comments: a token a line, a directive of the preprocessor a line."""
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
                lines[-1] += " "  # here it matters: #define A (x) is not #define A(x)
        elif directive:
            lines[-1] += token
        else:
            directive = token == "#" and first_of_line
            lines[-1:] = [token] if directive else [token, ""]
        first_of_line = match["newline"] is not None or (first_of_line and match["blank"] is not None)
    return "\n".join(lines)


def python_code(text: str) -> str:
    """A ``variant.py`` as its syntax tree, without docstrings, imports of mini_dnn and texts of ``idea=``.

    Not `ast.dump`, whose output depends on the version of Python: fields that are empty are left out.
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
    """Whether it says something to readers alone, or where a part of mini_dnn lies."""
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
    """Whether something is imported under another name, by which it is not known again."""
    return any(alias.asname for alias in node.names)
