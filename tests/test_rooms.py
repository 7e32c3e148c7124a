"""The rooms of the package: which may import which, and which may name an operation."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from mini_dnn import ops
from mini_dnn.paths import PACKAGE, ROOT

FLOORS = (  # from bottom to top; rooms on one floor may import each other, but not in a cycle
    {"errors", "progress", "paths"},
    {"device", "datasets", "pictures", "work"},
    {"nn"},
    {"ops"},
    {"variant"},
    {"quads", "plans", "running"},
    {"checking", "interop"},
    {"measuring", "profiling"},
    {"grading", "report", "explain", "handout"},
    {"cli"},
    {"mini_dnn", "__main__"},  # for `import mini_dnn` and `python -m mini_dnn`
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MOST_FILES = 6
# These may name an operation
MAY_NAME_ROOMS = ("mini_dnn.ops.", "mini_dnn.nn.", "mini_dnn.datasets.", "mini_dnn.plans.")
MAY_NAME = (
    "mini_dnn.ops",
    "mini_dnn.nn",
    "mini_dnn.datasets",
    "mini_dnn.quads",  # the host half of one operation
    "mini_dnn.variant",  # the names that variants import
    "mini_dnn.variant.folders",
    "mini_dnn.measuring.inference",  # these five are the course's program
    "mini_dnn.measuring.layerwise",
    "mini_dnn.grading.network",
    "mini_dnn.cli.infer",
    "mini_dnn.cli.train",
    "mini_dnn.measuring.pictures",  # the network on a user's own pictures
)
NAMES = re.compile(r"(?<![a-z])conv(?!e|i|oy)\w*|lenet\w*", re.IGNORECASE)  # convert, convince, convoy

Graph = Mapping[str, set[str]]


@cache
def modules() -> dict[str, Path]:
    """All modules of the package by name. The file of a package is its ``__init__.py``."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imported(tree: ast.AST, module: str = "") -> set[str]:
    """The package's modules that a text imports, also inside functions, without the module itself."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{module}: a relative import"
            inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules() else node.module for name in inner.values()}
    return {name for name in found if name in modules()} - {module}


@cache
def graph() -> Graph:
    return {name: imported(ast.parse(file.read_text()), name) for name, file in modules().items()}


def circle(graph: Graph) -> list[str]:
    """Nodes that form a cycle; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def upward(graph: Graph) -> list[str]:
    return [
        f"{name} imports {other}"
        for name, others in graph.items()
        for other in sorted(others)
        if FLOOR_OF[room(other)] > FLOOR_OF[room(name)]
    ]


@pytest.mark.whole
def test_every_room_has_a_floor() -> None:
    assert {room(name) for name in modules()} == set(FLOOR_OF)


def test_nothing_runs_upward() -> None:
    assert not upward(graph())


def test_no_circle_between_modules() -> None:
    assert not circle(graph())


def test_no_circle_between_rooms() -> None:
    rooms: dict[str, set[str]] = {}
    for name, others in graph().items():
        rooms.setdefault(room(name), set()).update({room(other) for other in others} - {room(name)})
    assert not circle(rooms)


def test_nothing_imports_what_is_no_part_of_the_package() -> None:
    outside = {"run", "tests", "docs", *(file.stem for file in (ROOT / "benchmarks").glob("*.py"))}
    for name, file in modules().items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert not outside & {alias.name for alias in node.names}, name
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in outside, name


def test_what_is_upward_or_a_circle_is_found() -> None:
    """Imports inside functions count, too."""
    text = (
        "from mini_dnn import ops\ndef f():\n    from mini_dnn.cli import main\n    import mini_dnn.errors\n"
    )
    found = imported(ast.parse(text))
    assert found == {"mini_dnn.cli", "mini_dnn.errors", "mini_dnn.ops"}
    assert upward({"mini_dnn.running.runner": found}) == ["mini_dnn.running.runner imports mini_dnn.cli"]
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_few_files_lie_in_the_package_itself() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_FILES


def must_not_name() -> list[tuple[str, Path]]:
    return [
        (name, file)
        for name, file in modules().items()
        if name not in MAY_NAME and not name.startswith(MAY_NAME_ROOMS)
    ]


def test_only_few_modules_know_the_courses_operations() -> None:
    """The other modules contain neither their code nor their names."""
    lines = [
        f"{name}:{number}: {line.strip()}"
        for name, file in must_not_name()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if NAMES.search(line)
    ]
    assert not lines, "\n".join(lines)


@cache
def words(file: Path) -> set[Any]:
    """All strings and numbers in a module."""
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.value for node in nodes if isinstance(node, ast.Constant)}


@pytest.mark.parametrize("op", ops.names())
def test_no_other_module_knows_an_operation(op: str) -> None:
    """It neither imports the operation's file nor contains its name as a string."""
    found = [
        name for name, file in must_not_name() if f"mini_dnn.ops.{op}" in graph()[name] or op in words(file)
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("convert conversion convention converge convenient convex convey convince convoy", 0),
        ("a convolution, conv2d, Conv1, CONV, conv_direct, numpy_conv, ConvShape, convolve", 8),
        ("LeNet, lenet, LenetBatch, networks/lenet/whole; planet", 4),
    ],
)
def test_which_words_are_names(text: str, count: int) -> None:
    assert len(NAMES.findall(text)) == count
