"""``run.py classify`` on the emulator, on a GPU, and by two processes."""

import csv
import io
import json
from pathlib import Path

import pytest
from classify_samples import folder as folder
from classify_samples import garments as garments
from classify_samples import weights as weights

from mini_dnn.cli import main


@pytest.mark.exhaustive
def test_on_the_emulator_as_on_the_host(
    weights: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches that are not full, with broken files in between."""
    rows = {}
    for impl, device in (("cpu", "auto"), ("networks/resnet18/v2_layers", "emulator")):
        flags = ["--weights", str(weights), "--impl", impl, "--device", device, "--batch", "4", "--csv", "-"]
        assert main(["classify", str(folder), "--network", "resnet18", *flags]) == 1
        rows[impl] = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    host, device_rows = rows.values()
    assert [row["class"] for row in host] == [row["class"] for row in device_rows]
    for a, b in zip(host, device_rows, strict=True):
        assert float(a["probability"] or 0) == pytest.approx(float(b["probability"] or 0), rel=1e-4, abs=2e-6)


@pytest.mark.parametrize(
    "device",
    [pytest.param("emulator", marks=pytest.mark.exhaustive), pytest.param("cuda", marks=pytest.mark.gpu)],
)
def test_the_shipped_residual_network_on_the_fastest_rung(
    folder: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """16 channels and a stem of 3 x 3, for kernels that handle 64 channels at a time."""
    found = []
    for flags in (["--impl", "cpu"], ["--impl", "networks/resnet18/v6_graph", "--device", device]):
        words = ["classify", str(folder), "--network", "resnet18", "--batch", "4", "--csv", "-", *flags]
        assert main(words) == 1  # three files cannot be read
        found.append(list(csv.DictReader(io.StringIO(capsys.readouterr().out))))
    best = [[row["class"] for row in rows if row["rank"] == "1"] for rows in found]
    assert best[0] == best[1]
    assert len(best[0]) == 10
    for a, b in zip(*([row for row in rows if row["rank"] == "1"] for rows in found), strict=True):
        assert float(a["probability"]) == pytest.approx(float(b["probability"]), abs=0.02)


@pytest.mark.exhaustive
def test_by_two_processes_as_by_one(
    weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result is the same, bit for bit and in the same order, for every choice of shards."""
    parquet = pytest.importorskip("pyarrow.parquet")
    impl = ["--impl", "networks/resnet18/v2_layers", "--device", "emulator", "--batch", "4"]
    tables = []
    for at, more in enumerate(([], ["--gpus", "2", "--shard", "4"])):
        files = [f"{tmp_path}/{at}.{kind}" for kind in ("csv", "jsonl", "parquet")]
        named = [word for file in files for word in (f"--{file.rpartition('.')[2]}", file)]
        words = ["classify", str(folder), "--network", "resnet18", "--weights", str(weights)]
        assert main([*words, *impl, *more, *named]) == 1
        out, err = capsys.readouterr()
        assert err.count("error: ") == 3
        assert "10 of 13 pictures" in out
        tables.append([Path(file).read_bytes() for file in files])
    assert "emulator 0: " in out
    assert tables[0][:2] == tables[1][:2]
    one, two = (parquet.read_table(f"{tmp_path}/{at}.parquet") for at in range(2))
    assert one.equals(two)
    rows = list(csv.DictReader(io.StringIO(tables[0][0].decode())))
    assert [str(v or "") for v in one["name"].to_pylist()] == [row["name"] for row in rows]
    lines = [json.loads(line) for line in tables[0][1].splitlines()]
    assert [line["file"] for line in lines] == list(dict.fromkeys(row["file"] for row in rows))
    assert sorted(path.name for path in tmp_path.glob("*.parts")) == []
