"""Read JSON strictly: what some readers ignore, or read differently, is an error."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

DEEPEST = 32  # nested lists and objects; a results file has 7 levels
LONGEST_NUMBER = 40  # characters; the longest of a double has 24, of a 64-bit integer 20
LARGEST = 2**63


class Odd(Exception):
    """What is wrong, and where in the text."""


class _Twice(dict[str, Any]):
    """An object in which a key occurs twice."""

    key: str


class _Long:
    """A number with too many digits."""

    def __init__(self, text: str) -> None:
        self.length = len(text)


def parse(text: bytes) -> Any:
    """Parse a JSON text.

    Raises
    ------
    Odd
        The text is not JSON, has a key twice in an object, NaN or an infinity, a number that is too long or
        too large, half of a surrogate pair, or is nested too deeply.
    """
    try:
        value = json.loads(
            text.decode(),
            object_pairs_hook=_object,
            parse_int=lambda digits: int(digits) if len(digits) <= LONGEST_NUMBER else _Long(digits),
            parse_float=lambda digits: float(digits) if len(digits) <= LONGEST_NUMBER else _Long(digits),
        )
    except RecursionError:
        raise Odd(f"it is nested too deeply: at most {DEEPEST} levels are expected") from None
    except UnicodeDecodeError as error:
        raise Odd(f"it is not JSON: byte {error.start} is not UTF-8") from None
    except ValueError as error:
        raise Odd(f"it is not JSON: {error}") from None
    check(value)
    return value


def check(value: Any, place: str = "", depth: int = 0) -> None:
    """Raise an error for values that JSON cannot represent unambiguously: see `parse`.

    Raises
    ------
    Odd
        The value, or a part of it, is such a value.
    """
    where = f"{place}: " if place else ""
    match value:
        case _Long():
            raise Odd(
                f"{where}a number of {value.length:,} characters; at most {LONGEST_NUMBER} are expected"
            )
        case float() if not math.isfinite(value):
            raise Odd(f"{where}found {value}; expected a finite number")
        case int() if not -LARGEST <= value < LARGEST:
            raise Odd(f"{where}found {value}, which does not fit 64 bits")
        case str() if not _is_text(value):
            raise Odd(f"{where}half of a surrogate pair, which is not text, in {value!a:.60}")
        case dict() | list() if depth == DEEPEST:
            raise Odd(f"{where}nested too deeply: at most {DEEPEST} levels are expected")
        case _Twice():
            raise Odd(f"{where}the key {value.key!a:.60} occurs twice")
        case dict():
            for key, part in value.items():
                check(key, f"{place}, a key" if place else "a key")
                check(part, f"{place}.{key:.60}" if place else f"{key:.60}", depth + 1)
        case list() | tuple():
            for at, part in enumerate(value):
                check(part, f"{place}[{at}]", depth + 1)


def checksum(content: Any) -> str:
    """Return the SHA-256, in hexadecimal, of a value's canonical JSON: sorted keys, no spaces."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    twice = _Twice(found)
    twice.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return twice


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
