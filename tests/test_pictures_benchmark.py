"""benchmarks/pictures.py: from image files to classes, measured with a made-up clock."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pictures
import pytest

from mini_dnn.device import Device
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.nn.models.resnet import ResNetSizes, build
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.variant import find

TINY = ResNetSizes(12, 3, "small", (8, 8, 8, 8), (1, 1, 1, 1), 3)
VARIANT = "networks/resnet18/v2_layers"


@pytest.fixture
def classifier(tmp_path: Path) -> Classifier:
    info = WeightsInfo("synthetic", {}, 0, "", description=TINY.to_json())
    save(tmp_path / "weights.h5", build(TINY, np.random.default_rng(0)), info)
    return Classifier.load("resnet18", tmp_path / "weights.h5")


@pytest.mark.exhaustive
def test_every_part_is_measured(
    classifier: Classifier, tmp_path: Path, emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replayed(graph: Any, device: Device, count: int) -> float:
        graph.replay()
        return 40.0

    monkeypatch.setattr(pictures, "replayed", replayed)
    variant, folder = find(VARIANT), tmp_path / "pictures"
    folder.mkdir()
    files = pictures.draw_pictures(folder, 4)
    assert [file.suffix for file in files] == [".jpg", ".jpg", ".jpg", ".png"]
    row = pictures.latency(classifier, variant, files[:2], emulator)
    assert row["pictures"] == 2
    assert 0 < row["decoding_p50_ms"] < row["whole_p50_ms"] <= row["whole_p99_ms"]
    assert "a file at a time, ms: whole " in pictures.said(row)
    row = pictures.throughput(classifier, variant, [folder], 2, emulator, "files")
    assert (row["pictures"], row["batch"]) == (4, 2)
    assert row["decoding_s"] > 0
    decoded = pictures.decoded_files(tmp_path, files[:1], classifier.recipe, 3)
    assert {name: np.load(file).shape for name, file in decoded.items()} == {
        "rows": (3, 12, 12, 3),
        "planes": (3, 3, 12, 12),
    }
    for form, file in decoded.items():
        row = pictures.throughput(classifier, variant, [file], 2, emulator, f"decoded, {form}")
        assert (row["pictures"], row["decoding_s"]) == (3, 0)
        assert f"v2_layers, decoded, {form}: " in pictures.said(row)
    flags = ["--device", "emulator", "--top", "3"]
    row = pictures.program(tmp_path / "weights.h5", variant, decoded.values(), "classify", flags)
    assert row["pictures"] == 6
    assert re.match(r"(network|results); shares of the time: the network \d+%, ", row["limit"])
    assert f"--top 3 \n  limit: {row['limit']}" in pictures.said(row)
    problem = replace(ResNetShape.like(TINY, 2), dtype="uint8")
    row = pictures.pinned(variant, problem, emulator, 2)
    assert row["over_longer"] == pytest.approx(np.median(row["ms"]) / 40)
    assert "2 images of bytes in pinned memory: served " in pictures.said(row)
