"""The formats of ``classify``: the same bytes as csv, json and pyarrow write one picture at a time."""

import csv
import io
import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import classify_output
import numpy as np
import pytest

from mini_dnn.cli import formats
from mini_dnn.cli.classified import Outputs
from mini_dnn.cli.formats import COLUMNS, DIGITS, LABEL, decimals, plain, runs
from mini_dnn.measuring.kept import Answers

CLASSES = ["tench", 'a "quoted", one', "comma, here", "Käse ☃", "back\\slash", " space ", "%s {0}"]
NAMES = [
    "a.png",
    'b "2", c.png',
    "caf\udce9.png",
    "line\nbreak\r.png",
    "ü/☃.jpg",
    "\x1b[2J",
    "x.npy[7]",
    "",
    " ",
]
VALUES = np.array(
    [
        1,
        0,
        0.5,
        1e-6,
        4.9e-7,
        5.1e-7,
        9.95e-5,
        1e-4,
        0.9999996,
        0.9999994,
        0.1,
        1 / 3,
        0.123,
        0.01,
        0.2500005,
    ],
    np.float32,
)


def answers(top: int, broken: str, count: int = 40) -> Answers:
    """Random answers. Each letter of ``broken`` describes a picture that cannot be read."""
    rng = np.random.default_rng(top)
    errors = ['it is damaged, and "empty" ü' if broken[i % len(broken)] == "x" else "" for i in range(count)]
    good = errors.count("")
    classes = np.array([rng.permutation(len(CLASSES))[:top] for _ in range(good)], np.int64).reshape(
        good, top
    )
    probabilities = np.concatenate([VALUES, rng.random(good * top, np.float32)])[: good * top]
    names = [NAMES[i % len(NAMES)] for i in range(count)]
    return Answers(names, errors, classes, probabilities.reshape(good, top))


def pictures(
    given: Answers, labels: list[int] | None
) -> Iterator[tuple[dict[str, Any], list[tuple[Any, ...]]]]:
    """The object and the table rows of each picture, one at a time."""
    rows = iter(zip(given.classes.tolist(), given.probabilities.tolist(), strict=True))
    for name, error, label in zip_longest(given.names, given.errors, labels or ()):
        found: dict[str, Any] = {"file": name} | ({} if label is None else {"label": label})
        last = () if label is None else (label,)
        if error:
            yield found | {"error": error}, [(name, None, None, None, None, error, *last)]
            continue
        best = [(k, CLASSES[k], round(p, DIGITS)) for k, p in zip(*next(rows), strict=True)]
        classes = [{"class": k, "name": text, "probability": p} for k, text, p in best]
        table = [(name, rank, *entry, None, *last) for rank, entry in enumerate(best, 1)]
        yield found | {"classes": classes}, table


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(
    ("top", "broken"), [(1, "."), (2, "..x"), (3, "x.xx."), (4, "x"), (5, "."), (5, ".......xx")]
)
def test_the_same_bytes_as_by_a_picture_at_a_time(
    top: int,
    broken: str,
    labelled: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(formats, "TOGETHER", 7)
    monkeypatch.setattr(formats, "GROUP", 25)
    given = answers(top, broken)
    labels = [i % len(CLASSES) for i in range(len(given.names))] if labelled else None
    parquet = pytest.importorskip("pyarrow.parquet")
    files = {kind: str(tmp_path / f"x.{kind}") for kind in ("json", "jsonl", "csv", "parquet")}
    with Outputs(files, force=False).open({"network": "ü"}, CLASSES, labelled) as writer:
        for some in given.split(11):
            writer.add(some, labels and (labels[:11] if len(some.names) == 11 else labels[11:]))
        writer.end({"failed": 3})
    out, err = capsys.readouterr()

    objects, rows = [], []
    for found, some_rows in pictures(given, labels):
        objects.append(found)
        rows += some_rows
    said = [
        f"{plain(found['file'])}: "
        + ", ".join(f"{round(1000 * float(p)) / 1000:.1%} {CLASSES[k]}" for k, p in zip(*best, strict=True))
        + "\n"
        for found, best in zip(
            [found for found in objects if "classes" in found],
            zip(given.classes.tolist(), given.probabilities.tolist(), strict=True),
            strict=True,
        )
    ]
    assert out == "".join(said)
    failed = [found for found in objects if "error" in found]
    assert err == "".join(f"error: {plain(found['file'])}: {found['error']}\n" for found in failed)

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    columns = COLUMNS | (LABEL if labelled else {})
    table.writerow(columns)
    table.writerows(rows)
    assert Path(files["csv"]).read_bytes() == text.getvalue().encode(errors="surrogateescape")
    lines = [json.dumps(found) for found in objects]
    assert Path(files["jsonl"]).read_text() == "".join(f"{line}\n" for line in lines)
    inner = ",\n  ".join(lines)
    whole = f'{{\n "network": "\\u00fc",\n "pictures": [\n  {inner}\n ],\n "failed": 3\n}}\n'
    assert Path(files["json"]).read_text() == whole

    stored = parquet.ParquetFile(files["parquet"])
    groups = [stored.metadata.row_group(i).num_rows for i in range(stored.num_row_groups)]
    assert groups == [25] * (len(rows) // 25) + [len(rows) % 25]
    escaped = [(row[0].encode(errors="backslashreplace").decode(), *row[1:]) for row in rows]
    assert [tuple(row.values()) for row in stored.read().to_pylist()] == escaped
    assert list(map(str, stored.schema_arrow.types)) == [
        t.replace("float64", "double") for t in columns.values()
    ]


def test_every_probability_has_the_digits_that_repr_gives_it() -> None:
    millionths = np.arange(10**DIGITS + 1) / 10**DIGITS
    first, last = decimals(millionths)
    assert (first + last).tolist() == list(map(repr, millionths.tolist()))


def test_probabilities_are_rounded_as_by_python() -> None:
    """This includes halves, which occur in fp32: 2 ** -7 has seven decimals, of which the last is a 5."""
    some = np.concatenate([VALUES, np.arange(129) / np.float32(128), 2.0 ** -np.arange(30)]).astype(
        np.float32
    )
    some = np.concatenate([some, np.random.default_rng(0).random(20_000, np.float32) ** 8])
    for given in (some, some.astype(np.float64), np.random.default_rng(1).random(20_000)):
        first, last = decimals(given)
        assert (first + last).tolist() == [repr(round(p, DIGITS)) for p in given.tolist()]
    first, last = decimals(np.array([1.0005, -0.0], np.float32))
    assert (first + last).tolist() == ["1.0", "0.0"]


def test_a_shard_is_written_in_parts() -> None:
    given = answers(2, ".......x", count=5_003)
    parts = list(runs(given, None))
    assert max(len(part.names) for part in parts) <= formats.TOGETHER
    assert [name for part in parts for name in part.names] == given.names
    np.testing.assert_array_equal(np.concatenate([part.classes for part in parts]), given.classes)
    (whole,) = {len(part.names) for part in runs(answers(1, ".", 2_000), [0] * 2_000)}
    assert whole == formats.TOGETHER


def test_the_time_of_each_format_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(classify_output, "BATCHES", 2)
    assert classify_output.main() == 0
    out, err = capsys.readouterr()
    assert out == ""
    kinds = ["softmax", "classes", "lines", "json", "jsonl", "csv", "parquet"]
    assert [line.split()[0] for line in err.splitlines()] == kinds
    assert all(float(line.split()[1]) > 0 for line in err.splitlines())
