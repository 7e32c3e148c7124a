"""Of which code figures are: whether it is that of this checkout's variants as they are now.

Names come from files that anybody may have written, and to load a variant is to run its code. So only names
of this checkout's variants are looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mini_dnn.errors import VariantError
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.serving_records import OpTime
from mini_dnn.report.load import Results
from mini_dnn.report.rows import Row
from mini_dnn.report.serving import Serving
from mini_dnn.variant import Variant, find, names, own

GONE = "no variant of this checkout, so that nothing was looked up"  # why figures are stale
BROKEN = "it cannot be loaded"
CHANGED = "the code has changed since"
NOT_SAID = "the file does not say which code it measured (code_hash)"


def why_stale(variant: str, measured: str) -> str:
    """Why figures of the code with that hash are not known to be of the variant's code; empty if they are."""
    found = present(variant)
    if found is None:
        return _lacking(variant)
    return "" if code_of(found) == measured else CHANGED


def stale_lines(measured: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    """Warnings of figures that are not known to be of the present code, from variants and their hashes."""
    found: dict[str, dict[str, None]] = {}
    for name, code in dict.fromkeys(measured):
        if code is not None and (why := why_stale(name, code)):
            found.setdefault(why, {})[name] = None
    for why, variants in found.items():
        yield f"stale, {why}: {', '.join(f'`{name}`' for name in variants)}"


def official(name: str) -> str:
    """The full name of a variant that an operation names; the name itself if there is none."""
    try:
        return find(name).name if name else name
    except VariantError:
        return name


def not_looked_up(results: Results) -> list[str]:
    """Variants that results name, and that are none of this checkout: only their names are known."""
    named = [row.variant for row in results.rows]
    named += [row.variant for one in results.servings for row in _served(one)]
    named += [row.program for one in results.savings for row in one.content.rows if row.code_hash]
    named += [row.program for one in results.batches for row in one.content.rows if row.kind == "ours"]
    ours = set(names())
    return [name for name in dict.fromkeys(named) if name not in ours]


def _served(one: Serving) -> list[OpTime]:
    return [*one.content.latency, *one.content.growth, *one.content.throughput]


def present(variant: str) -> Variant | None:
    """The variant of this checkout as it is now; None if there is none, or it is broken."""
    try:
        return own(variant)
    except VariantError:
        return None


def _lacking(variant: str) -> str:
    return BROKEN if variant in names() else GONE


def why_rows_stale(rows: Collection[Row], variant: Variant | None, current: str | None) -> str:
    """Why a variant's rows are not known to be of its code, whose hash is ``current``; empty if they are."""
    if variant is None:
        return _lacking(next(iter(rows)).variant)
    if any(row.code_hash is None and not row.on_host for row in rows):
        return NOT_SAID
    return CHANGED if any(row.code_hash != current for row in rows) else ""
