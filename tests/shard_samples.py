"""Archives of pictures, and a command that classifies one of them in shards."""

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mini_dnn.cli.classified import Writer
from mini_dnn.measuring.kept import Answers
from mini_dnn.nn.models.resnet import ResNetSizes, build
from mini_dnn.nn.weights import WeightsInfo, save

SIZES = ResNetSizes(12, 1, "small", (4, 4, 4, 4), (1, 1, 1, 1), 6)
RECIPE = {"resize": 12, "crop": 12, "mean": [0], "deviation": [1]}


def png(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (16, 16), np.uint8)).save(file, "PNG")
    return file.getvalue()


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A command that classifies 23 pictures in shards of 4. Two of the pictures are broken."""
    network = build(SIZES, np.random.default_rng(0))
    save(tmp_path / "w.h5", network, WeightsInfo("unknown", {}, 0, "a test", description=SIZES.to_json()))
    (tmp_path / "recipe.json").write_text(json.dumps(RECIPE))
    members = {f"{n:02}.png": b"words" if n in (3, 10) else png(n) for n in range(23)}
    pictures = str(archive(tmp_path / "x.tar", members))
    command = ["classify", pictures, "--network", "resnet18", "--impl", "cpu"]
    command += ["--weights", str(tmp_path / "w.h5"), "--recipe", str(tmp_path / "recipe.json")]
    return [*command, "--batch", "3", "--shard", "4", "--top", "2"]


def stops_after(count: int, error: BaseException) -> Callable[..., None]:
    """A function that writes answers and fails after ``count`` pictures."""
    real, seen = Writer.add, 0

    def stops(writer: Writer, answers: Answers, labels: Sequence[int] | None) -> None:
        nonlocal seen
        seen += len(answers.names)
        if seen > count:
            raise error
        real(writer, answers, labels)

    return stops
