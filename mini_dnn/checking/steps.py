"""Where the ``variant.py`` beside a kernel writes a step of its plan."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

from mini_dnn.device.finding import Place
from mini_dnn.variant.plan import Images, Launch, Step


def step_place(source: Path, step: Step) -> Place | None:
    """The line of the call that makes a step, where it can be told.

    Of several calls of its kind it is the one that gives as its literals what the step has.
    """
    file = source.with_name("variant.py")
    if not file.is_file() or (isinstance(step, Launch) and step.code):
        return None
    text = file.read_text(errors="replace")
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
    _, call = max(calls, key=lambda each: each[0])  # of equals the first one
    return Place(file.name, call.lineno, text.splitlines()[call.lineno - 1].strip())


def _agreement(call: ast.Call, step: Step) -> int | None:
    """How many fields a call gives literally, all of them as the step has them; None where one differs."""
    names = [field.name for field in fields(step)]
    stars = [at for at, arg in enumerate(call.args) if isinstance(arg, ast.Starred)]
    sure = call.args[: stars[0]] if stars else call.args  # *go: who knows how many that are
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
    """Whether an expression is that value; None where it is no literal."""
    if isinstance(node, ast.Constant):
        return bool(node.value == value)
    if isinstance(value, Images) and isinstance(node, ast.Call) and node.args:
        return _literal(node.args[0], value.buffer)
    return None
