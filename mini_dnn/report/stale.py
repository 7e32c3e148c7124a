"""Find out whether figures belong to the present code of this checkout's variants.

Results files may come from anybody, and loading a variant runs its code. Therefore, only the names of this
checkout's variants are looked up.
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

GONE = "no variant of this checkout, so that nothing was looked up"  # a reason why figures are stale
BROKEN = "it cannot be loaded"
CHANGED = "the code has changed since"
NOT_SAID = "the file does not say which code it measured (code_hash)"


def why_stale(variant: str, measured: str) -> str:
    """Return why figures of code with the hash ``measured`` are stale, or an empty string if they are not."""
    found = present(variant)
    if found is None:
        return _lacking(variant)
    return "" if code_of(found) == measured else CHANGED


def stale_lines(measured: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    """Warn of figures that may not belong to the present code. ``measured`` has variants and hashes."""
    found: dict[str, dict[str, None]] = {}
    for name, code in dict.fromkeys(measured):
        if code is not None and (why := why_stale(name, code)):
            found.setdefault(why, {})[name] = None
    for why, variants in found.items():
        yield f"stale, {why}: {', '.join(f'`{name}`' for name in variants)}"


def official(name: str) -> str:
    """Return the full name of a variant that an operation names, or else the name itself."""
    try:
        return find(name).name if name else name
    except VariantError:
        return name


def not_looked_up(results: Results) -> list[str]:
    """Return the variants that results name but that are not in this checkout. Only their names are known."""
    named = [row.variant for row in results.rows]
    named += [row.variant for one in results.servings for row in _served(one)]
    named += [row.program for one in results.savings for row in one.content.rows if row.code_hash]
    named += [row.program for one in results.batches for row in one.content.rows if row.kind == "ours"]
    ours = set(names())
    return [name for name in dict.fromkeys(named) if name not in ours]


def _served(one: Serving) -> list[OpTime]:
    return [*one.content.latency, *one.content.growth, *one.content.throughput]


def present(variant: str) -> Variant | None:
    """Return a variant of this checkout in its present form, or None if it does not exist or is broken."""
    try:
        return own(variant)
    except VariantError:
        return None


def _lacking(variant: str) -> str:
    return BROKEN if variant in names() else GONE


def why_rows_stale(rows: Collection[Row], variant: Variant | None, current: str | None) -> str:
    """Return why a variant's rows are stale, or an empty string.

    ``current`` is the hash of its present code.
    """
    if variant is None:
        return _lacking(next(iter(rows)).variant)
    if any(row.code_hash is None and not row.on_host for row in rows):
        return NOT_SAID
    return CHANGED if any(row.code_hash != current for row in rows) else ""
