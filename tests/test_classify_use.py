"""``run.py classify``: wrong use, results files, and the parts of its output."""

import json
from pathlib import Path

import numpy as np
import pytest
from classify_samples import folder as folder
from classify_samples import garments as garments
from classify_samples import weights as weights

from mini_dnn import datasets
from mini_dnn.cli import classified, main
from mini_dnn.cli.classified import Outputs
from mini_dnn.cli.formats import plain
from mini_dnn.datasets import names
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.measuring import answers
from mini_dnn.measuring.kept import Answers
from mini_dnn.measuring.likeliest import top
from mini_dnn.measuring.pipeline import Spent


def test_a_file_that_another_run_has_just_written_is_left_alone(tmp_path: Path) -> None:
    """Both runs found no file when they began."""
    file = tmp_path / "results.json"
    late, forced = (Outputs({"json": str(file)}, force) for force in (False, True))
    file.write_text("the other run's results")
    with pytest.raises(UsageError, match=r"results\.json already exists; name another file"), late.alone():
        pytest.fail("it would be replaced")
    with forced.alone():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"], "no lock is left"


def test_files_that_exist_are_left_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text("mine")
    words = ["classify", f"{folder}/0.png", "--network", "vit", "--impl", "cpu", "--json", str(mine)]
    assert main(words) == 2
    assert "already exists; name another file, or use --force to replace it" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert main([*words, "--force"]) == 0
    assert json.loads(mine.read_text())["classified"] == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, MiniDnnError])
def test_nothing_is_written_half(
    error: type[BaseException], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **more: object) -> None:
        raise error("damaged")

    monkeypatch.setattr(answers, "top", broken)
    out = tmp_path / "out"
    out.mkdir()
    files = ["--json", str(out / "out.json"), "--csv", str(out / "out.csv")]
    status = main(["classify", str(folder), "--network", "vit", "--impl", "cpu", *files])
    assert status == (130 if error is KeyboardInterrupt else 2)
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no pictures are named"),
        (["x.png", "--top", "0"], "--top 0: expected 1 or more"),
        (["x.png", "--top", "11"], "the network has 10 classes"),
        (["x.png", "--batch", "0"], "--batch 0: expected 1 or more"),
        (["x.png", "--workers", "-1"], "--workers -1: expected 1 or more"),
        (["x.png", "--impl", "cpu", "--device", "emulator"], "remove --device emulator"),
        (["x.png", "--impl", "m3"], "it computes conv2d, but the vision transformer needs vit"),
        (["x.png", "--json", "-", "--csv", "-"], "--json and --csv both name -"),
        (["x.png", "--json", "/"], "is a folder; name a file in it"),
        (["x.png", "--recipe", "/nowhere/recipe.json"], "cannot be used: No such file"),
        (["x.png", "--weights", "/nowhere.h5"], "there is no such file"),
    ],
)
def test_wrong_use(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", "--network", "vit", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "instead of an object"),
        ("{", "cannot be used"),
        ('{"crop": 30}', "pictures of 30 pixels in 3 channels"),
        ('{"crop": 20, "mean": [0], "deviation": [1]}', "in 1 channels"),
        ('{"size": 20}', "a recipe has no field size"),
    ],
)
def test_wrong_recipes(
    text: str, says: str, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.json").write_text(text)
    flags = ["--weights", str(weights), "--recipe", str(tmp_path / "recipe.json")]
    assert main(["classify", "x.png", "--network", "resnet18", *flags]) == 2
    assert says in capsys.readouterr().err


def test_names_of_classes() -> None:
    imagenet = names.class_names("imagenet", 1000)
    assert len(set(imagenet)) == 1000
    assert [imagenet[k] for k in (0, 134, 207, 517, 999)] == [
        "tench",
        "crane (bird)",
        "golden retriever",
        "crane (machine)",
        "toilet tissue",
    ]
    assert names.class_names("fashion-mnist", 10) == datasets.CLASSES
    assert names.class_names("imagenet", 3) == ["class 0", "class 1", "class 2"]


def test_the_likeliest_classes() -> None:
    given = np.array([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]])
    classes, probabilities = top(given, 2)
    assert classes.tolist() == [[1, 2], [0, 2]]
    assert probabilities.tolist() == [[0.5, 0.3], [0.4, 0.4]]
    assert given.tolist() == [[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]
    many = np.random.default_rng(0).integers(0, 9, (50, 40)) / 9.0  # with many equal values
    for count in (1, 5, 40):
        classes, probabilities = top(many, count)
        assert classes.tolist() == np.argsort(-many, axis=1, kind="stable")[:, :count].tolist()
        assert probabilities.tolist() == (-np.sort(-many, axis=1)[:, :count]).tolist()
    for wrong, says in ((np.nan, "not numbers: its weights are damaged"), (1.1, "outside 0 to 1")):
        given[1, 1] = wrong
        for count in (1, 2):
            with pytest.raises(MiniDnnError, match=says):
                top(given.copy(), count)


@pytest.mark.parametrize(
    ("spent", "output", "limit"),
    [
        (Spent(1.9, waited=1.2, decoding=2.0, network=0.3), 0.1, "decoding"),
        (Spent(0.9, waited=0.1, network=0.8), 1.1, "network"),  # results are written at the same time
        (Spent(0.9, copying=0.6, network=0.2), 1.1, "copies"),
        (Spent(0.9, network=0.3), 1.1, "output"),
        (Spent(1.5, network=0.4), 0.5, "results"),
        (Spent(2.0, network=1.9), 1.9, "output"),  # in the process that waits for the one that writes
        (Spent(0.2, network=0.1), 1.8, "output"),
        (Spent(4.0, network=3.0, waited=0.1), 0.0, "network"),
        (Spent(), 0.0, "results"),
    ],
)
def test_what_limited(spent: Spent, output: float, limit: str) -> None:
    """The limiting part of a run of two seconds."""
    assert classified.limit(spent, output, 2.0) == limit
    assert classified.in_words(spent, output, 2.0).startswith(limit)


def test_names_of_files_are_no_commands_to_a_terminal(tmp_path: Path) -> None:
    assert plain("a\x1b[2Jb\udcff é") == r"a\x1b[2Jb\udcff é"
    name = "caf\udce9,\n.png"
    odd = Answers([name], [""], np.array([[1]]), np.array([[0.5]]))
    outputs = classified.Outputs(
        {"json": str(tmp_path / "x.json"), "csv": str(tmp_path / "x.csv")}, force=False
    )
    with outputs.open({"network": "x"}, ["Bag", "Coat"]) as writer:
        writer.add(odd)
        writer.end({"failed": 0})
    assert json.loads((tmp_path / "x.json").read_text())["pictures"][0]["file"] == name
    assert b"caf\xe9,\n.png" in (tmp_path / "x.csv").read_bytes()
