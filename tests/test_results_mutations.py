"""Results files with random changes: none changes what is believed, and none breaks the report."""

import copy
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from report_records import fake_full, fake_run, fake_serving, sealed, small, stored

from mini_dnn.errors import MiniDnnError
from mini_dnn.report.board import boards
from mini_dnn.report.load import load
from mini_dnn.report.page import write_report

ODD = [None, True, -1, 0, 1e999, "", "x", [], {}, 10**30, 1e-320, [None], {"": None}, "2999-01-01", 7.5]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container together with each of its keys."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, part in inside:
        found.append((value, key))
        if isinstance(part, dict | list):
            found += places(part)
    return found


def mutated(content: Any, rng: random.Random) -> Any:
    """The content with another value at a random place."""
    changed = copy.deepcopy(content)
    inside, key = rng.choice(places(changed))
    match rng.randrange(4):
        case 0:
            del inside[key]
        case 1 if isinstance(inside[key], int | float):
            inside[key] = inside[key] * rng.choice([-1, 2, 1.01, 0.5, 1e-3])
        case 2 if isinstance(inside[key], str) and inside[key]:
            at = rng.randrange(len(inside[key]))
            inside[key] = inside[key][:at] + chr(rng.randrange(0x20, 0x10FFFF)) + inside[key][at + 1 :]
        case _:
            inside[key] = rng.choice(ODD)
    return changed


def flipped(text: bytes, rng: random.Random) -> bytes:
    """The text with a few bytes changed, removed or doubled."""
    at, length = rng.randrange(len(text)), rng.choice([1, 1, 1, 2, 8, 100])
    middle = [rng.randbytes(length), b"", text[at : at + length] * 2, b"9" * length][rng.randrange(4)]
    return text[:at] + middle + text[at + length :]


def one_line(error: MiniDnnError) -> None:
    assert "\n" not in str(error)


def believed(path: Path) -> str | None:
    """Everything that the reader takes from a file; None if it refuses the file, in one line."""
    try:
        results = load([path])
        boards(results)
    except MiniDnnError as error:
        return one_line(error)
    return repr((results.rows, results.servings, results.peers)).replace(str(path), "")


@pytest.mark.parametrize("count", [200, pytest.param(500, marks=pytest.mark.exhaustive)])
def test_no_mutation_of_a_file_changes_what_is_believed(count: int, tmp_path: Path) -> None:
    rng = random.Random(count)
    record = sealed(small())
    text = json.dumps(record).encode()
    path = stored(tmp_path, record)
    before = believed(path)
    assert before is not None
    for _ in range(count):
        new = flipped(text, rng) if rng.random() < 0.5 else None
        path.write_bytes(new or json.dumps(mutated(record, rng)).encode("utf-8", "surrogatepass"))
        assert believed(path) in (None, before), path.read_bytes()
    path.write_bytes(text)
    tracemalloc.start()
    try:
        believed(path)
        peak = tracemalloc.get_traced_memory()[1]
        for _ in range(10):
            path.write_bytes(flipped(text, rng))
            tracemalloc.reset_peak()
            believed(path)
            assert tracemalloc.get_traced_memory()[1] <= 2 * peak
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("unplotted")
@pytest.mark.parametrize("count", [25, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_a_sealed_lie_ends_in_a_page_or_in_one_line(count: int, tmp_path: Path) -> None:
    """Anyone can seal a changed file, and may claim anything within the ranges.

    It must not break the report.
    """
    rng = random.Random(count)
    records = [small(), fake_serving(schema="serving-3"), fake_run() | {"schema": "peers-4"}]
    ours = stored(tmp_path, sealed(small()), "ours.json")
    accepted = 0
    for _ in range(count):
        lie = mutated(rng.choice(records), rng)
        path = tmp_path / "results.json"
        path.write_text(json.dumps(sealed(lie)) if isinstance(lie, dict) else json.dumps(lie))
        try:
            results = load([ours, path])
            boards(results)
        except MiniDnnError as error:
            one_line(error)
            continue
        if accepted % 8 == 0:  # a page takes much longer than the rest
            write_report(results, tmp_path / "out")
        accepted += 1
    assert accepted > count / 5


@pytest.mark.exhaustive
@pytest.mark.usefixtures("plotted_once")
def test_every_form_of_page_takes_lies(tmp_path: Path) -> None:
    rng = random.Random(1)
    full, pages = fake_full() | {"schema": 4}, 0
    for _ in range(50):
        path = stored(tmp_path, sealed(mutated(full, rng)))
        if believed(path):
            write_report(load([path]), tmp_path / "out")
            pages += 1
    assert pages >= 3
