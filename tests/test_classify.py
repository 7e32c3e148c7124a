"""``run.py classify``: from image files to the names of classes."""

import csv
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from mini_dnn import datasets
from mini_dnn.cli import classified, main
from mini_dnn.cli.classified import Outputs
from mini_dnn.cli.formats import plain
from mini_dnn.datasets import names
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.measuring import answers
from mini_dnn.measuring.kept import Answers
from mini_dnn.measuring.likeliest import top
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.paths import ROOT
from mini_dnn.pictures.recipe import Recipe

TINY = ResNetSizes(20, 3, "small", (4, 4, 8, 8), (1, 1, 1, 1), 6)
RECIPE = {"resize": 24, "crop": 20}


@pytest.fixture(scope="module")
def garments() -> np.ndarray:
    """Drawn garments, (N, 28, 28) uint8."""
    images, _ = datasets.draw(12, seed=3)
    return datasets.resize(images[:, 0] if images.ndim == 4 else images, 28)[:, 0]


@pytest.fixture
def folder(garments: np.ndarray, tmp_path: Path) -> Path:
    """A folder with ten pictures, and three files that cannot be read."""
    found = tmp_path / "pictures"
    found.mkdir()
    for i, image in enumerate(garments[:10]):
        Image.fromarray(image).save(found / f"{i}.png")
    (found / "3a.jpg").write_bytes(b"")
    (found / "3b.png").write_bytes((found / "3.png").read_bytes()[:90])
    (found / "9z.png").write_bytes(b"words")
    return found


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a tiny residual network, untrained."""
    path = tmp_path_factory.mktemp("weights") / "tiny.h5"
    network = resnet.build(TINY, np.random.default_rng(0))
    save(path, network, WeightsInfo("unknown", {}, 0, "a test", description=TINY.to_json()))
    return path


def classes_of(pixels: np.ndarray) -> list[int]:
    """The classes that the shipped transformer assigns to images (N, 28, 28) uint8."""
    network = Classifier.load("vit").network
    return network.predict(datasets.to_float(pixels[:, None])).tolist()


def test_a_folder_with_broken_files(
    folder: Path, garments: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--network", "vit", "--impl", "cpu", "--top", "3", "--batch", "4"]
    files = ["--json", str(tmp_path / "out.json"), "--csv", str(tmp_path / "out.csv")]
    assert main(["classify", str(folder), *flags, *files]) == 1
    out, err = capsys.readouterr()
    for name, why in (
        ("3a.jpg", "it is empty"),
        ("3b.png", "truncated or damaged"),
        ("9z.png", "not a picture"),
    ):
        assert f"error: {folder / name}: " in err
        assert why in err
    assert "3 of 13 pictures could not be read" in err
    assert "10 of 13 pictures in" in out
    assert "\nlimit     " in out
    expected = [datasets.CLASSES[k] for k in classes_of(garments[:10])]
    lines = [line for line in out.splitlines() if line.startswith(str(folder))]
    assert [line.split("% ", 1)[1].split(",")[0] for line in lines] == expected

    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["classified"], found["failed"], found["network"]) == (10, 3, "vit")
    rows = found["pictures"]
    assert [Path(row["file"]).name for row in rows] == sorted(path.name for path in folder.iterdir())
    good = [row["classes"] for row in rows if "classes" in row]
    assert [classes[0]["name"] for classes in good] == expected
    assert all(1 >= a["probability"] >= b["probability"] > 0 for a, b, _ in good)
    assert sum("error" in row for row in rows) == 3

    table = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [row["name"] for row in table if row["rank"] == "1"] == expected
    assert len(table) == 10 * 3 + 3
    assert [row["file"] for row in table if row["error"]] == [
        str(folder / name) for name in ("3a.jpg", "3b.png", "9z.png")
    ]


def test_the_shipped_residual_network_in_batches_of_any_size(
    folder: Path, garments: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    classifier = Classifier.load("resnet18")
    x = classifier.recipe.normalised(garments[:10, ..., None])
    expected = [str(k) for k in classifier.network.predict(x)]  # computed by the layers
    for more in (["--batch", "1", "--workers", "1"], ["--batch", "7", "--workers", "3"]):
        assert main(["classify", str(folder), "--impl", "cpu", "--csv", "-", "--top", "1", *more]) == 1
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert [row["class"] for row in rows if not row["error"]] == expected
        assert [row["file"] for row in rows] == sorted(str(path) for path in folder.iterdir())


def test_all_that_is_asked_for_is_json_on_standard_output(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", f"{folder}/0.png", "--network", "vit", "--impl", "cpu", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["pictures"]
    assert len(row["classes"]) == 5
    assert "1 of 1 pictures" in err


def standard_input(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_a_picture_from_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standard_input((folder / "0.png").read_bytes(), monkeypatch)
    assert main(["classify", "-", f"{folder}/0.png", "--network", "vit", "--impl", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first, second = (line for line in lines if line.startswith(("standard input: ", f"{folder}/0.png: ")))
    assert first.removeprefix("standard input") == second.removeprefix(f"{folder}/0.png")


def test_names_from_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standard_input(f"{folder}/1.png\n{folder}/0.png\n".encode(), monkeypatch)
    assert (
        main(["classify", "--list", "-", "--network", "vit", "--impl", "cpu", "--csv", "-", "--top", "1"])
        == 0
    )
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == [f"{folder}/1.png", f"{folder}/0.png"]


def test_finished_pixels(garments: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", garments)
    flags = ["--network", "vit", "--impl", "cpu", "--csv", "-", "--top", "1", "--batch", "5"]
    assert main(["classify", str(tmp_path / "x.npy"), *flags]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [int(row["class"]) for row in rows] == classes_of(garments)
    assert rows[7]["file"] == f"{tmp_path}/x.npy[7]"
    assert "limit     " in err
    assert "all workers decoded" not in err


def test_inverted(garments: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Photographs of garments on white, for a network that was trained on light garments on black."""
    Image.fromarray(255 - garments[0]).save(tmp_path / "dark.png")
    Image.fromarray(garments[0]).save(tmp_path / "light.png")
    flags = ["--network", "vit", "--impl", "cpu", "--top", "10"]

    def line(*words: str) -> str:
        assert main(["classify", *words, *flags]) == 0
        return next(text for text in capsys.readouterr().out.splitlines() if ".png: " in text)

    light = line(str(tmp_path / "light.png")).partition(": ")[2]
    assert line(str(tmp_path / "dark.png"), "--invert").partition(": ")[2] == light
    assert line(str(tmp_path / "dark.png"), "--no-invert").partition(": ")[2] != light


def test_a_residual_network_by_a_recipe(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step from a file to probabilities is computed here in another way than in the program."""
    (tmp_path / "recipe.json").write_text(json.dumps(RECIPE))
    x = np.random.default_rng(5).integers(0, 256, (24, 30, 3), np.uint8)
    Image.fromarray(x).save(tmp_path / "x.png")
    flags = ["--network", "resnet18", "--weights", str(weights), "--recipe", str(tmp_path / "recipe.json")]
    assert main(["classify", str(tmp_path / "x.png"), *flags, "--impl", "cpu", "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["pictures"]
    given = (x[2:22, 5:25] / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    network = resnet.build(TINY, np.random.default_rng(0), np.float64)
    (expected,) = network.forward(given.transpose(2, 0, 1)[None])
    found = {entry["class"]: entry["probability"] for entry in row["classes"]}
    assert list(found) == np.argsort(-expected)[:5].tolist()
    np.testing.assert_allclose(list(found.values()), np.sort(expected)[::-1][:5], rtol=1e-4, atol=1e-6)
    assert row["classes"][0]["name"] == f"class {row['classes'][0]['class']}"  # its name is unknown


def test_names_from_a_file(
    weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["classify", f"{folder}/0.png", "--weights", str(weights), "--impl", "cpu", "--top", "6"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "NOTE: the names of the classes are not known" in out
    assert f"network   {TINY.title}, 6 classes, cpu\n" in out
    file = tmp_path / "names"
    file.write_text("# a notice\n" + "\n".join("abcdef"))
    assert main([*words, "--classes", str(file)]) == 0
    out = capsys.readouterr().out
    assert "NOTE" not in out
    assert sorted(re.findall(r"% (\w+)", out.split("0.png: ")[1].split("\n")[0])) == list("abcdef")
    for text, says in (
        (b"a\nb\n", "has 2 names, and the network has 6 classes"),
        (b"\xff", "is not UTF-8 text"),
    ):
        file.write_bytes(text)
        assert main([*words, "--classes", str(file)]) == 2
        assert says in capsys.readouterr().err


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
    [
        pytest.param("emulator", marks=pytest.mark.exhaustive),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ],
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, MiniDnnError("damaged")])
def test_nothing_is_written_half(
    error: BaseException, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **more: object) -> None:
        raise error

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


def test_what_is_done_to_pictures_follows_the_weights(weights: Path, tmp_path: Path) -> None:
    assert Classifier.load("vit").recipe == Recipe(28, 28, (0.0,), (1.0,), background=0)
    assert Classifier.load("resnet18", weights).recipe == Recipe(23, 20)  # the recipe of ImageNet
    path = tmp_path / "coloured.h5"
    network = resnet.build(resnet.CIFAR10, np.random.default_rng(0))
    save(path, network, WeightsInfo("cifar10", {}, 0, "a test", description=resnet.CIFAR10.to_json()))
    found = Classifier.load("resnet18", path)
    assert found.recipe == Recipe(32, 32, (0.0,) * 3, (1.0,) * 3)
    assert found.classes[0] == "airplane"


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


def test_the_examples_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    drawing, stacking = re.findall(r"```python\n(.*?)```", (ROOT / "docs/classify.md").read_text(), re.DOTALL)
    exec(drawing, {})
    known = str(ROOT / "data/vit-synthetic.h5")
    assert main(["classify", "garments", "--network", "vit", "--weights", known, "--impl", "cpu"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("garments/")]
    right = sum(re.search(r"-(\w+)[ .]", row)[1] in row.partition("% ")[2].partition(",")[0] for row in rows)
    assert len(rows) == 10
    assert right >= 6  # chance would be 1
    Path("photos").mkdir()
    for i in range(2):
        Image.fromarray(np.full((30, 40, 3), 9 * i, np.uint8)).save(f"photos/{i}.jpg")
    exec(stacking, {})
    pixels = np.load("photos.npy")
    assert pixels.shape == (2, 3, 224, 224)
    assert (pixels == 9 * np.arange(2)[:, None, None, None]).all()


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
