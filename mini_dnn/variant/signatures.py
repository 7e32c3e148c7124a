"""The kernels in a file by their declarations: names, parameters, lines.

Only certain results are returned: a declaration that macros or ``#if`` change has no parameters here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mini_dnn.device.finding import Place
from mini_dnn.device.sources import read_source, source_files

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
KERNEL = re.compile(
    r"__global__\b(?:__launch_bounds__\s*\([^)]*\)|[^;{}()])*?\b(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)\s*\{"
)
QUALIFIERS = {"const", "volatile", "__restrict__", "restrict", "__grid_constant__"}
TYPES = {  # of arguments by value: NumPy's kind and size in bytes
    "bool": ("b", 1),
    "char": ("i", 1),
    "short": ("i", 2),
    "int": ("i", 4),
    "unsigned": ("i", 4),
    "unsigned int": ("i", 4),
    "int32_t": ("i", 4),
    "uint32_t": ("i", 4),
    "long": ("i", 8),
    "long long": ("i", 8),
    "long long int": ("i", 8),
    "unsigned long long": ("i", 8),
    "int64_t": ("i", 8),
    "uint64_t": ("i", 8),
    "size_t": ("i", 8),
    "half": ("f", 2),
    "__half": ("f", 2),
    "float": ("f", 4),
    "double": ("f", 8),
}
NUMPY = {("b", 1): "np.bool_", ("i", 1): "np.int8", ("i", 2): "np.int16", ("i", 4): "np.int32"}
NUMPY |= {("i", 8): "np.int64", ("f", 2): "np.float16", ("f", 4): "np.float32", ("f", 8): "np.float64"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    declaration: str  # "const float* x"

    @property
    def is_pointer(self) -> bool:
        """Whether it is a buffer."""
        return "*" in self.declaration or "[" in self.declaration

    @property
    def is_tensor_map(self) -> bool:
        """Whether it is a `TensorMap`."""
        return "TensorMap" in self.declaration.replace("::", " ").split()

    @property
    def type(self) -> tuple[str, int] | None:
        """NumPy's kind and size in bytes of an argument by value; None for a pointer, or if it is unknown."""
        words = [word for word in self.declaration.split() if word not in QUALIFIERS]
        return None if self.is_pointer else TYPES.get(" ".join(words[:-1])) or TYPES.get(" ".join(words))


@dataclass(frozen=True)
class Signature:
    """A kernel's declaration."""

    place: Place
    parameters: tuple[Parameter, ...] | None  # None if they are not certain

    def __str__(self) -> str:
        """The list of its parameters."""
        return ", ".join(p.declaration for p in self.parameters or ())


@dataclass(frozen=True)
class Kernels:
    """The declarations in the files of a kernel."""

    source: Path

    @cached_property
    def _texts(self) -> dict[Path, str]:
        """The files without their comments, line by line."""
        return {
            path: COMMENT.sub(lambda m: "\n" * m[0].count("\n"), read_source(path))
            for path in source_files(self.source)
        }

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """The declarations that can be parsed, by name."""
        found: dict[str, Signature] = {}
        for path, text in self._texts.items():
            for match in KERNEL.finditer(text):
                line = text.count("\n", 0, match.start("name")) + 1
                place = Place.at(self.source, str(path), line)
                assert place is not None, "it is one of the kernel's files"
                twice = match["name"] in found  # perhaps in two branches of an #if
                parameters = None if twice else _parameters(match["parameters"])
                found[match["name"]] = Signature(place, parameters)
        return found

    @property
    def have_cpp_names(self) -> bool:
        """Whether no kernel can be looked up, because nothing is declared ``extern "C"``."""
        return not any(re.search(r'\bextern\s*"C"', text) for text in self._texts.values())

    def lack(self, name: str) -> bool:
        """Whether no kernel can have this name: it does not occur, and no macro concatenates names."""
        return not any(re.search(rf"\b{re.escape(name)}\b|##", text) for text in self._texts.values())


def _parameters(text: str) -> tuple[Parameter, ...] | None:
    if text.strip() in ("", "void"):
        return ()
    parameters = tuple(Parameter(" ".join(part.split())) for part in text.split(","))
    certain = all(p.is_pointer or p.type or len(p.declaration.split()) > 1 for p in parameters)
    return parameters if certain and "#" not in text and "<" not in text else None
