"""The savings of FP16: rows, record, tables, picture and report. No figure here was measured."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import savings
from report_records import GPU, STATE, fake_record, fake_row, sealed, stored
from savings_programs import Prepared, Program

from mini_dnn.cli import main
from mini_dnn.errors import CheckError, DataError
from mini_dnn.measuring.energy import Load, Power, Tick
from mini_dnn.measuring.files import write
from mini_dnn.measuring.savings import Method, Savings, SavingsFile, figures, savings_file
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.report import readmes
from mini_dnn.report.load import load
from mini_dnn.report.savings import about, doubts, gains, gains_table, rows_table

IDLE = Power(watts=120.0, seconds=2.9, update_s=0.1, error=0.034)
SHAPE = {kind: GemmShape(4096, 4096, 4096, kind, kind) for kind in ("fp32", "fp16")}


def fake(kind: str, program: str, operands: str, products: str, op_ms: float, watts: float) -> dict[str, Any]:
    problem = SHAPE[operands]
    under_load = Power(watts=watts, seconds=2.8, update_s=0.1, error=0.036)
    runs = round(3000 / op_ms)
    return {
        "kind": kind,
        "program": program,
        "operands": operands,
        "products": products,
        "problem": problem.text,
        "code_hash": None,
        "flops": problem.flops,
        "operand_bytes": problem.min_bytes,
        "peak_bytes": problem.min_bytes + (32 << 20) * (kind == "library"),
        "relative_error": 2.1e-4,
        "state": STATE,
        **figures(Load(runs, 0.0, runs * op_ms / 1e3), under_load, IDLE),
    }


ROWS = [
    fake("ours", "gemm/v3_registers", "fp32", "fp32", 3.5, 620.0),
    fake("ours", "gemm/v3_registers", "fp16", "fp32", 3.0, 520.0),
    fake("ours", "gemm/v5_mma_async", "fp16", "fp16", 0.4, 620.0),
    fake("library", "cuBLAS", "fp32", "fp32", 2.8, 680.0),
    fake("library", "cuBLAS", "fp32", "tf32", 0.36, 700.0),
    fake("library", "cuBLAS", "fp16", "fp16", 0.2, 700.0),
]


def fake_file(rows: Sequence[dict[str, Any]] = ROWS, **changes: Any) -> dict[str, Any]:
    idle = vars(IDLE)
    return {
        "schema": "savings-2",
        "started": "2025-01-02T10:00:00+00:00",
        "commit": "0123456789abcdef",
        "dirty": False,
        "device": {"name": GPU, "cpu": "Test CPU", "state": STATE},
        "versions": {"python": "3.11"},
        "method": vars(Method()),
        "op": "gemm",
        "idle": idle,
        "idle_after": idle | {"watts": 131.0},
        "rows": list(rows),
        "skipped": [],
    } | changes


def record(**changes: Any) -> SavingsFile:
    return savings_file(fake_file(**changes), Path("savings.json"))


def test_energy_is_that_above_an_idle_gpu() -> None:
    found = figures(Load(6000, 10.0, 13.0), Power(watts=620.0, seconds=2.9, update_s=0.02, error=0.007), IDLE)
    assert found["op_ms"] == pytest.approx(0.5)
    assert found["energy_j"] == pytest.approx(0.25)  # 500 W for half a millisecond
    assert (found["runs"], found["power_w"], found["power_error"]) == (6000, 620.0, 0.007)
    assert record().rows[2].total_j == pytest.approx(0.248)


def test_tables() -> None:
    table = rows_table(record())
    assert {len(row) for row in table.rows} == {len(table.columns)}
    words = "`gemm/v5_mma_async` fp16 fp16 0.400 344 101 101 620 0.200 0.248 1980 2.1e-04"
    assert " ".join(table.rows[2]) == words
    assert table.rows[3][6] == "235"  # MB, including the library's work space
    assert gains_table(record()).rows == [
        ["`gemm/v3_registers`", "1.17×", "50 %", "50 %", "31 %"],
        ["`cuBLAS`", "14.0×", "50 %", "43 %", "93 %"],
        ["`gemm/v3_registers` to `gemm/v5_mma_async`", "8.75×", "50 %", "50 %", "89 %"],
    ]


def test_gains_are_of_what_was_measured() -> None:
    assert gains(record(rows=ROWS[:1]).rows) == []
    both = gains(record(rows=[ROWS[0], ROWS[2]]).rows)
    assert [gain.words for gain in both] == ["`gemm/v3_registers` to `gemm/v5_mma_async`"]


def test_text_says_how_exact_it_is() -> None:
    text = about(record())
    assert "updated every 100 ms, so the error of a power is at most 3.6 %" in text
    assert "used 120 W before the first run and 131 W after the last one, each after 3 s without work" in text


def test_doubts() -> None:
    stale = ROWS[0] | {"code_hash": "0" * 64}
    found = Savings(Path("s.json"), record(rows=[stale, *ROWS[1:]], dirty=True))
    assert list(doubts(found)) == [
        "`s.json` was measured with files that differ from its commit",
        "stale, the code has changed since: `gemm/v3_registers`",
    ]
    assert not list(doubts(Savings(Path("s.json"), record())))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [ROWS[0] | {"op_ms": 0}]}, r"savings\.json: rows\[0\]\.op_ms"),
        ({"rows": [ROWS[0] | {"kind": "theirs"}]}, r"rows\[0\]\.kind"),
        ({"idle": None}, "idle: Expected"),
    ],
)
def test_a_damaged_file_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        record(**changes)


class TestReport:
    def files(self, folder: Path) -> list[Path]:
        rows = [
            fake_row("gemm/v3_registers", 1, name, 0.1, code_hash=None) for name in ("fp16-1024", "fp32-1024")
        ]
        bench = stored(folder, fake_record(rows))
        later = stored(folder, sealed(fake_file(started="2025-01-03T10:00:00+00:00")), "later.json")
        stored(folder, sealed(fake_file(rows=ROWS[:1])), "earlier.json")
        elsewhere = fake_file(device={"name": "Other GPU", "cpu": "", "state": None})
        return [bench, later, folder / "earlier.json", stored(folder, sealed(elsewhere), "elsewhere.json")]

    def test_has_a_part(self, tmp_path: Path, plotted_once: None) -> None:
        words = ["report", *map(str, self.files(tmp_path)), "--out", str(tmp_path / "out")]
        assert main(words) == 0
        text = (tmp_path / "out" / "report.md").read_text()
        assert text.count("## What FP16 saves") == 1
        assert "From `later.json`." in text
        assert "15 % faster and needs 20 % fewer resources" in text
        (name,) = re.findall(r"\((savings.*?\.png)\)", text)
        assert (tmp_path / "out" / name).stat().st_size > 1000

    def test_readme_has_its_tables(self, tmp_path: Path) -> None:
        (tmp_path / "ladders" / "gemm").mkdir(parents=True)
        readme = tmp_path / "ladders" / "gemm" / "README.md"
        mark = "<!-- {0}:start -->\n<!-- {0}:end -->\n"
        readme.write_text(mark.format("ladder") + "between\n" + mark.format("savings"))
        found = load(self.files(tmp_path)).savings
        of_device = [one for one in found if one.content.device.name == GPU]
        is_now, text = readmes.updated([], tmp_path, of_device)[readme]
        assert is_now == readme.read_text()
        assert "Not measured at" in text.partition("between")[0]
        assert "| `gemm/v5_mma_async` | fp16 | fp16 | 0.400 |" in text.partition("between")[2]
        assert f"{GPU}, commit `0123456789`, problems `4096,4096,4096,fp32,fp32" in text
        readme.write_text(text)
        assert readmes.updated([], tmp_path, of_device)[readme] == (text, text)
        _, text = readmes.updated([], tmp_path)[readme]
        assert "Not measured yet: `python benchmarks/savings.py" in text


class FakeMeter:
    """A stand-in for `Meter`: always 600 W."""

    def __init__(self, device: Any) -> None:
        self.ticks: list[Tick] = []

    def __enter__(self) -> "FakeMeter":
        return self

    def __exit__(self, *error: object) -> None:
        now = savings.time.perf_counter()
        self.ticks = [Tick(now - at / 1000, 1e6 - 0.6 * at) for at in range(3000, 0, -1)]


QUICK = Method(settle_s=0.0, idle_s=0.01, warm_up_s=0.01, run_s=0.01)


def prepared(result: np.ndarray) -> Any:
    @contextmanager
    def prepare() -> Iterator[Prepared]:
        yield Prepared(lambda: savings.time.sleep(0.001), lambda: None, lambda: result, lambda: 123)

    return prepare


def test_a_run_goes_on_where_a_program_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(savings, "Meter", FakeMeter)
    device: Any = SimpleNamespace(description="GPU", synchronize=lambda: None)

    def check(found: np.ndarray) -> float:
        if found.size == 0:
            raise CheckError("all is off")
        return 1e-7

    def missing() -> Any:
        raise ImportError("no torch")

    good = Program("ours", "mine", SHAPE["fp32"], "fp32", None, prepared(np.ones(1)), check)
    bad = replace(good, name="bad", prepare=prepared(np.ones(0)))
    absent = replace(good, kind="library", name="absent", prepare=missing)
    found = savings.measured([bad, absent, good], device, QUICK)
    (row,) = found.rows
    assert (row.program, row.power_w, row.peak_bytes) == ("mine", pytest.approx(600.0), 123)
    assert row.energy_j == pytest.approx(0.0, abs=1e-6)  # the idle GPU uses as much here
    reasons = {one["program"]: one["reason"] for one in found.skipped}
    assert reasons == {"bad, fp32 as fp32": "wrong: all is off", "absent, fp32 as fp32": "no torch"}
    assert "skipped: bad, fp32 as fp32: wrong: all is off" in capsys.readouterr().out
    write(replace(found, rows=[replace(row, energy_j=0.3)]), tmp_path / "out.json")
    assert savings.read(tmp_path / "out.json").rows[0].program == "mine"


class TestProgram:
    def test_draws_what_is_stored(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file, drawn = stored(tmp_path, sealed(fake_file()), "savings.json"), tmp_path / "savings.svg"
        with mpl.rc_context({"svg.fonttype": "none"}):  # text stays text
            assert savings.main(["--from", str(file), "--picture", str(drawn)]) == 0
        words = re.findall(r"<text[^>]*>([^<]+)</text>", drawn.read_text())
        assert "gemm/v3_registers, fp16 as fp32" in words
        assert "energy of a product above idle, J" in words
        assert words.count("0.200") == 2  # ms of cuBLAS, J of v5
        assert "| `cuBLAS` | fp16 | fp16 | 0.200 |" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--from", "{file}", "--out", "{folder}/x.json"], "leave one of them out"),
            (["--from", "{file}", "--picture", "{folder}/x.pdf"], "written as .svg or .png"),
            (["--from", "{other}"], "schema is 3, and this program reads savings-2"),
            (["--seconds", "0"], "a positive number of seconds"),
            (["--out", "{folder}/none/x.json"], "there is no folder"),
        ],
    )
    def test_wrong_use(
        self, words: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = {
            "file": stored(tmp_path, sealed(fake_file()), "savings.json"),
            "other": stored(tmp_path, fake_record([]), "other.json"),
        }
        assert savings.main([word.format(folder=tmp_path, **files) for word in words]) == 2
        assert message in capsys.readouterr().err

    def test_wrong_results_are_an_exit_status(self, tmp_path: Path) -> None:
        skipped = [{"program": "cuBLAS, fp16 as fp16", "reason": "wrong: 3 elements"}]
        file = stored(tmp_path, sealed(fake_file(skipped=skipped)), "savings.json")
        assert savings.main(["--from", str(file)]) == 1
