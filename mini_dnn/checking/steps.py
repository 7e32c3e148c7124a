"""Find the line of ``variant.py`` next to a kernel that writes a step of its plan."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

from mini_dnn.device.finding import Place
from mini_dnn.device.sources import read_source
from mini_dnn.variant.plan import Images, Launch, Step


def step_place(source: Path, step: Step) -> Place | None:
    """Return the line of the call that creates a step, if it can be determined.

    Of several calls of its kind, it is the one whose literal arguments agree with the step.
    """
    file = source.with_name("variant.py")
    if not file.is_file() or (isinstance(step, Launch) and step.code):
        return None
    text = read_source(file)
    kind = type(step).__name__
    calls = [
        (agreement, node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and kind in (getattr(node.func, "id", None), getattr(node.func, "attr", None))
        and (agreement := _agreement(node, step)) is not None
    ]
    if not calls:
        return None
    _, call = max(calls, key=lambda each: each[0])  # of equal ones, the first
    return Place(file.name, call.lineno, text.split("\n")[call.lineno - 1].strip())


def _agreement(call: ast.Call, step: Step) -> int | None:
    """Count the literal fields of a call, which must all agree with the step; None if one differs."""
    names = [field.name for field in fields(step)]
    stars = [at for at, arg in enumerate(call.args) if isinstance(arg, ast.Starred)]
    sure = call.args[: stars[0]] if stars else call.args  # after *go, the positions are unknown
    given = {**dict(zip(names, sure, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
    agreed = 0
    for name in names:
        value = getattr(step, name)
        if name not in given:
            default = next(field.default for field in fields(step) if field.name == name)
            if default != value and not stars and None not in [k.arg for k in call.keywords]:
                return None
            continue
        found = _literal(given[name], value)
        if found is False:
            return None
        agreed += found is True
    return agreed


def _literal(node: ast.expr, value: Any) -> bool | None:
    """Whether an expression has this value; None if it is not a literal."""
    if isinstance(node, ast.Constant):
        return bool(node.value == value)
    if isinstance(value, Images) and isinstance(node, ast.Call) and node.args:
        return _literal(node.args[0], value.buffer)
    return None
