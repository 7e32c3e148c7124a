"""``results.json`` of an external grader of PrairieLearn.

Source: PrairieLearn's documentation, "External grading", section "Grading results".
"""

from __future__ import annotations

from typing import Any

from mini_dnn.grading.outputs.view import View, fitted

MAX_BYTES = 1_000_000  # the service accepts 1 MB


def prairielearn(view: View) -> str:
    """Return the content of the file, shortened to the size that the service accepts."""
    return fitted(view, _results, MAX_BYTES)


def _results(view: View) -> dict[str, Any]:
    return {
        "gradable": True,
        "score": view.fraction,
        "message": view.summary,
        "output": "",
        "format_errors": [],
        "images": [],
        "tests": [
            {
                "name": item.name,
                "description": item.status,
                "points": item.points,
                "max_points": item.max_points,
                "message": item.message,
                "output": "",
                "images": [],
            }
            for item in view.items
        ],
    }
