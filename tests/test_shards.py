"""Data sets in shards: archives, arrays in files, and the results that an interrupted run keeps."""

import csv
import errno
import io
import json
import os
import re
import struct
import tarfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from mini_dnn import datasets
from mini_dnn.cli import main
from mini_dnn.cli.classified import Writer
from mini_dnn.errors import UsageError
from mini_dnn.measuring.answers import Job
from mini_dnn.measuring.elsewhere import as_plain, plain, source_of
from mini_dnn.measuring.kept import Answers, Kept
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.nn.models.resnet import ResNetSizes, build
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.pictures import stacks
from mini_dnn.pictures.decode import decode
from mini_dnn.pictures.feed import Feed
from mini_dnn.pictures.labels import Labels
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import File, Shard, sources
from mini_dnn.pictures.stacks import Stack
from mini_dnn.variant import find
from mini_dnn.variant.scaffold import create

GREY = Recipe(16, 12, (0.5,), (0.25,))
RECIPE = {"resize": 12, "crop": 12, "mean": [0], "deviation": [1]}
SIZES = ResNetSizes(12, 1, "small", (4, 4, 4, 4), (1, 1, 1, 1), 6)


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


def pixels(*named: str) -> tuple[list[str], np.ndarray]:
    batches = list(Feed(sources(named, None, GREY), GREY, 4, workers=2))
    assert not any(error for batch in batches for error in batch.errors)
    return [n for batch in batches for n in batch.names], np.concatenate([b.pixels for b in batches])


def test_an_archive_in_the_manner_of_webdataset(tmp_path: Path) -> None:
    """Pictures keep the archive's order. Other files are skipped, and names may have any length."""
    long = "x" * 150 + "ü"
    members = {
        "a/0.png": png(0),
        "a/0.cls": b"3",
        f"{long}.JPG": png(1),
        "a/.hidden.png": b"",
        "b.png": png(2),
    }
    name = str(archive(tmp_path / "some.tar", members))
    with tarfile.open(name, "a") as file:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    names, found = pixels(name)
    assert names == [f"{name}/a/0.png", f"{name}/{long}.JPG", f"{name}/b.png"]
    np.testing.assert_array_equal(found, [decode(png(seed), GREY) for seed in range(3)])


def test_archives_that_cannot_be_read(tmp_path: Path) -> None:
    whole = archive(tmp_path / "whole.tar", {f"{n}.png": png(n) for n in range(3)}).read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: 2 * 512 + 512 + 50])
    (tmp_path / "words.tar").write_bytes(b"words" * 500)
    archive(tmp_path / "empty.tar", {"a.txt": b""})
    for name, says, expected in (
        ("cut.tar", "ends before its end|archive is truncated or damaged", [False, True, True]),
        ("words.tar", "archive is truncated or damaged", [True]),
        ("empty.tar", "no file in this archive", [True]),
        ("none.tar", "cannot be read: No such file", [True]),
    ):
        (batch,) = Feed(sources([str(tmp_path / name)], None, GREY), GREY, 4, workers=1)
        assert [bool(re.search(says, error)) for error in batch.errors[-len(expected) :]] == expected
    with pytest.raises(UsageError, match=r"is compressed, .* convert it to a .tar file"):
        sources(["photos.tar.gz"], None, GREY)


def test_arrays_of_pictures_in_files(tmp_path: Path) -> None:
    given = np.random.default_rng(0).integers(0, 256, (10, 12, 12, 1), np.uint8)
    np.save(tmp_path / "x.npy", given)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["images"] = given[..., 0]
        file["labels"] = np.zeros(10)
        file.create_dataset("packed", data=given, chunks=(4, 12, 12, 1), compression="gzip")
        file["deep/down"] = given
        file["planes"] = given.reshape(10, 1, 12, 12)
    for name in ("x.npy", "x.h5:images", "x.h5:packed", "x.h5:deep/down", "x.h5:planes"):
        names, found = pixels(f"{tmp_path}/{name}")
        np.testing.assert_array_equal(found, given)
        assert names[7] == f"{tmp_path}/{name}[7]"
    with pytest.raises(UsageError, match=r"it holds images, packed, planes; name one, as in x\.h5:images"):
        sources([f"{tmp_path}/x.h5"], None, GREY)
    with pytest.raises(UsageError, match="there is no array 'more' in it"):
        sources([f"{tmp_path}/x.h5:more"], None, GREY)
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file["images"] = given
        file["elsewhere"] = h5py.ExternalLink("x.h5", "images")
    np.testing.assert_array_equal(pixels(f"{tmp_path}/one.h5")[1], given)
    with pytest.raises(UsageError, match="there is no array 'elsewhere' in it"):
        sources([f"{tmp_path}/one.h5:elsewhere"], None, GREY)


@pytest.mark.parametrize("header", ["{'descr': ('<f4'\n", "{'descr': 5, 1: 2, (): 3}\n"])
def test_an_array_with_a_damaged_header(header: str, tmp_path: Path) -> None:
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.npy cannot be used: its header is damaged"):
        sources([f"{tmp_path}/x.npy"], None, GREY)


def test_hdf5_with_damaged_metadata(tmp_path: Path) -> None:
    """Whatever byte is damaged, either the file is refused in words, or its pictures can be found."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["images"] = np.zeros((2, 12, 12), np.uint8)
    whole, refusals = (tmp_path / "x.h5").read_bytes(), 0
    for i in range(0, len(whole), 3):
        (tmp_path / "x.h5").write_bytes(whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :])
        try:
            sources([f"{tmp_path}/x.h5"], None, GREY)
        except UsageError:
            refusals += 1
    assert refusals > 50


def test_a_name_that_the_system_refuses_is_one_picture(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(0))
    names = [f"{tmp_path}/{'x' * 300}.png", f"{tmp_path}/a.png"]
    found = sources(names, None, GREY)
    assert found.count == 2
    assert not found.are_decoded
    (shard,) = found.shards()
    assert len(shard.key("about")) == 64


@pytest.mark.parametrize("block", [0, 512])
def test_an_array_that_lies_in_an_hdf5_file_as_it_is_is_mapped(tmp_path: Path, block: int) -> None:
    """Threads then copy from it in parallel, as from a ``.npy`` file. Other arrays are read by HDF5."""
    given = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 1), np.uint8)
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=block) as file:
        file["before"] = np.arange(5)
        file["images"] = given
        file.create_dataset("chunked", data=given, chunks=(2, 8, 8, 1))
        file.create_dataset("never", given.shape, np.uint8)
    kinds = {"images": np.memmap, "chunked": h5py.Dataset, "never": h5py.Dataset}
    for name, kind in kinds.items():
        with stacks.opened(tmp_path / "x.h5", name) as found:
            assert type(found) is kind
            np.testing.assert_array_equal(found[2:], 0 * given[2:] if name == "never" else given[2:])


def test_shards_of_all_kinds(tmp_path: Path) -> None:
    """All shards are full, except for the last one. Arrays are divided at the ends of shards."""
    np.save(tmp_path / "x.npy", np.zeros((10, 12, 12), np.uint8))
    (tmp_path / "a.png").write_bytes(png(0))
    found = sources([f"{tmp_path}/a.png", f"{tmp_path}/x.npy", f"{tmp_path}/a.png"], None, GREY)
    assert found.count == 12
    shards = list(found.shards(5))
    assert [shard.count for shard in shards] == [5, 5, 2]
    assert [
        (source.first, source.last) if isinstance(source, Stack) else "a"
        for s in shards
        for source in s.sources
    ] == ["a", (0, 4), (4, 9), (9, 10), "a"]
    assert str(shards[2]) == "shard 2 of 2 pictures"
    key = shards[0].key("about")
    assert key == next(iter(found.shards(5))).key("about")
    assert key != shards[0].key("more")
    assert len({shard.key("about") for shard in shards}) == 3
    (tmp_path / "a.png").write_bytes(png(0) + b" ")  # the picture has changed
    assert next(iter(found.shards(5))).key("about") != key


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A command that classifies 23 pictures in shards of 4. Two of the pictures are broken."""
    network = build(SIZES, np.random.default_rng(0))
    save(tmp_path / "w.h5", network, WeightsInfo("unknown", {}, 0, "a test", description=SIZES.to_json()))
    (tmp_path / "recipe.json").write_text(
        json.dumps({"resize": 12, "crop": 12, "mean": [0], "deviation": [1]})
    )
    members = {f"{n:02}.png": b"words" if n in (3, 10) else png(n) for n in range(23)}
    command = [
        "classify",
        str(archive(tmp_path / "x.tar", members)),
        "--network",
        "resnet18",
        "--impl",
        "cpu",
    ]
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_run_goes_on(
    error: BaseException,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same command computes only the missing shards, and the results are those of a single run."""
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    assert main([*words, "--csv", str(whole)]) == 1
    assert not (tmp_path / "whole.csv.parts").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stops_after(14, error))
        assert main([*words, "--csv", str(parts)]) != 0
    assert "parts.csv.parts keeps the complete shards; use the same command to" in capsys.readouterr().err
    assert not parts.exists()
    assert len(list((tmp_path / "parts.csv.parts").iterdir())) == 3
    done: list[int] = []
    save_shard = Kept.save
    monkeypatch.setattr(Kept, "save", lambda self, n, answers: (done.append(n), save_shard(self, n, answers)))
    capsys.readouterr()
    assert main([*words, "--csv", str(parts)]) == 1
    assert done == [3, 4, 5]
    assert parts.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "parts.csv.parts").exists()
    err = capsys.readouterr().err
    assert "2 of 23 pictures could not be read" in err
    assert err.count("it is not a picture") == 2
    table = list(csv.DictReader(io.StringIO(parts.read_text())))
    assert len(table) == 21 * 2 + 2


def test_other_code_computes_all_shards_again(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv_file = ["--csv", str(tmp_path / "x.csv")]
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stops_after(14, KeyboardInterrupt()))
        assert main([*words, *csv_file]) == 130
    done: list[int] = []
    save_shard = Kept.save
    monkeypatch.setattr(Kept, "save", lambda self, n, answers: (done.append(n), save_shard(self, n, answers)))
    monkeypatch.setattr("mini_dnn.cli.classify.digest", lambda: "a hash of other code")
    assert main([*words, *csv_file]) == 1
    assert done == [0, 1, 2, 3, 4, 5]


def test_infer_reads_shards_as_classify_does(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is the same, also after an interruption. If labels are given, so is the accuracy."""
    given = [k % 6 for k in range(23)]
    (tmp_path / "y.txt").write_text("".join(f"{k}\n" if k % 2 else f"class {k}\n" for k in given))
    np.save(tmp_path / "y.npy", np.array(given, np.uint8))
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["labels"] = np.array(given)
    infer = ["infer", "--pictures", *words[1:]]
    assert main([*words, "--csv", str(tmp_path / "plain.csv")]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stops_after(14, KeyboardInterrupt()))
        assert main([*infer, "--csv", str(tmp_path / "x.csv"), "--labels", f"{tmp_path}/y.npy"]) == 130
    assert len(list((tmp_path / "x.csv.parts").iterdir())) == 3
    said = []
    for name in ("y.npy", "y.txt", "y.h5:labels"):
        capsys.readouterr()
        files = ["--csv", str(tmp_path / "x.csv"), "--json", str(tmp_path / "x.json"), "--force"]
        assert main([*infer, *files, "--labels", f"{tmp_path}/{name}"]) == 1
        out, err = capsys.readouterr()
        assert "2 of 23 pictures could not be read" in err
        assert "\nlimit     " in out
        said.append(re.findall(r"Test Accuracy: .*", out))
    table = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    lines = [",".join(line.split(",")[:-1]) for line in (tmp_path / "x.csv").read_text().splitlines()]
    assert lines == (tmp_path / "plain.csv").read_text().splitlines()
    known = {row["file"]: int(row["label"]) for row in table}
    assert list(known.values()) == given
    right = sum(row["rank"] == "1" and row["class"] == row["label"] for row in table)
    assert said == [[f"Test Accuracy: {right / 21:.4f} ({right} of 21 pictures)"]] * 3
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["accuracy"] == right / 21
    assert [row["label"] for row in found["pictures"]] == given


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--pictures", "x.tar", "--labels", "short.txt"], "has 2 labels for 23 pictures; expected one for"),
        (["--pictures", "x.tar", "--labels", "wrong.txt"], "line 2 is 'six'; expected a class a line"),
        (["--pictures", "x.tar", "--labels", "wrong.npy"], "label 1 is 6; expected a class a line"),
        (["--pictures", "x.tar", "--labels", "none.txt"], "none.txt cannot be used: No such file"),
        (["--pictures", "x.tar", "--check"], "--check is for the test images of a data set"),
        (["--pictures", "x.tar", "--impl", "m3"], "--impl m3 runs single layers"),
        (["--pictures", "x.tar", "--impl", "cpu", "--resident", "layers"], "cannot be combined"),
        (["--labels", "short.txt"], "--labels needs --pictures"),
    ],
)
def test_wrong_use_of_infer(
    flags: list[str],
    says: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("1\n2\n")
    (tmp_path / "wrong.txt").write_text("1\nsix\n")
    np.save("wrong.npy", np.array([5, 6]))
    network = words[words.index("--network") : words.index("--impl")]
    assert main(["infer", *network, *words[words.index("--weights") :][:4], *flags]) == 2
    assert says in capsys.readouterr().err


def test_lenet_classifies_pictures_as_it_does_test_images() -> None:
    """LeNet gets 28 x 28 bytes, and enlarges them itself like those of the data set."""
    images, _ = datasets.draw(3, seed=1)
    small = datasets.resize(images[:, 0], 28)[:, 0, ..., None]
    lenet = Classifier.load("lenet")
    (found,) = lenet.on_host([small], Spent())
    given = datasets.to_float(datasets.resize(small[..., 0]))
    np.testing.assert_array_equal(found, lenet.network.forward(given))


def test_what_is_kept_belongs_to_what_was_asked(tmp_path: Path) -> None:
    shard = Shard(0, (File("x", b"data"),), 1)
    answers = Answers(["x"], [""], np.array([[1, 0]]), np.array([[0.75, 0.25]]))
    kept = Kept(tmp_path / "parts", ["network", 2])
    assert kept.load(shard) is None
    kept.save(0, answers)
    found = Kept(tmp_path / "parts", ["network", 2]).load(shard)
    assert found is not None
    assert found.names == ["x"]
    np.testing.assert_array_equal(found.probabilities, answers.probabilities)
    assert Kept(tmp_path / "parts", ["another", 2]).load(shard) is None
    (file,) = (tmp_path / "parts").iterdir()
    file.write_bytes(file.read_bytes()[:100])  # it is damaged, so it is computed again
    assert kept.load(shard) is None
    (tmp_path / "parts" / "mine.npz").write_bytes(b"mine")
    kept.remove()
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["mine.npz"]
    (tmp_path / "file.parts").write_bytes(b"mine")
    with pytest.raises(UsageError, match="is not a folder"):
        Kept(tmp_path / "file.parts", None)


def test_a_worker_finds_the_variant_that_was_named_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder and its home may be others."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = create(str(tmp_path / "my/own"), find("networks/resnet18/v1_conv_bn"))
    job = Job("resnet18", None, GREY, "", None, 1, 1, False)
    for impl in ("~/my/own", "./my/own", "my/own", str(folder)):
        assert as_plain(replace(job, impl=impl))["impl"] == str(folder)
    assert as_plain(job)["impl"] == ""


@pytest.mark.exhaustive
def test_by_an_engine_as_by_this_process(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each shard is an item, and completed shards are not computed again."""
    tables = []
    for more in ([], ["--executor", "local"]):
        assert main([*words, "--csv", str(tmp_path / "x.csv"), "--force", *more]) == 1
        tables.append((tmp_path / "x.csv").read_bytes())
    assert tables[0] == tables[1]
    assert not (tmp_path / "x.csv.parts").exists()
    capsys.readouterr()
    for more, says in (
        (["--executor", "local"], "needs a results file"),
        (["--executor", "local", "--gpus", "2"], "one GPU per worker"),
        (["--profile", "x.toml"], "--profile x.toml needs --executor"),
    ):
        assert main([*words[:2], *more]) == 2
        assert says in capsys.readouterr().err
    with pytest.raises(UsageError, match="standard input can be read only here"):
        plain(File("standard input", b""))
    np.save(tmp_path / "x.npy", np.zeros((3, 12, 12), np.uint8))
    named = [str(tmp_path / "x.npy"), str(tmp_path / "x.tar"), str(tmp_path / "none.png"), "no.tar"]
    for source in sources(named, None, GREY):
        again = source_of(json.loads(json.dumps(plain(source))))
        assert str(again) == str(source)


def test_stored_answers_are_read_when_it_is_their_turn(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a missing shard is computed, the others do not wait in memory. An empty file is missing."""
    words += ["--shard", "1"]
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    assert main([*words, "--csv", str(whole)]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stops_after(22, KeyboardInterrupt()))
        assert main([*words, "--csv", str(parts)]) == 130
    stored = sorted((tmp_path / "parts.csv.parts").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    assert len(stored) == 22
    stored[1].write_bytes(b"")
    made, alive, make = weakref.WeakSet[Answers](), [0], Answers.__init__

    def counted(self: Answers, *given: Any) -> None:
        make(self, *given)
        made.add(self)
        alive.append(len(made))

    monkeypatch.setattr(Answers, "__init__", counted)
    assert main([*words, "--csv", str(parts)]) == 1
    assert parts.read_bytes() == whole.read_bytes()
    assert max(alive) < 8


def test_labels_that_are_names(tmp_path: Path) -> None:
    """Empty lines are skipped. A name that several classes have says nothing, but their numbers do."""
    labels = Labels(str(tmp_path / "y.txt"), ("crane", "bag", "crane"))
    (tmp_path / "y.txt").write_text("bag\n\n2\n 0 \n\n")
    assert list(labels) == [1, 2, 0]
    (tmp_path / "y.txt").write_text("bag\n\ncrane\n")
    with pytest.raises(UsageError, match="line 3 is 'crane', which is the name of several classes"):
        labels.check(2)


def test_a_second_run_to_the_same_files_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    seen: list[str] = []
    real = Writer.add

    def meanwhile(writer: Writer, answers: Answers, labels: Sequence[int] | None) -> None:
        real(writer, answers, labels)
        if not seen:
            for more in (["--force", "--csv"], ["--jsonl", f"{tmp_path}/out/y.jsonl", "--csv"]):
                assert main([*words, *more, f"{tmp_path}/link/x.csv"]) == 2
                seen.append(capsys.readouterr().err)

    monkeypatch.setattr(Writer, "add", meanwhile)
    assert main([*words, "--csv", f"{tmp_path}/out/x.csv"]) == 1
    assert len(seen) == 2
    assert all(f"another run is writing {tmp_path}/out/x.csv; wait until it ends" in said for said in seen)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["x.csv"]
    assert main([*words, "--csv", f"{tmp_path}/out/x.csv", "--force"]) == 1  # and then it is not locked


@pytest.mark.parametrize("flag", ["--csv", "--parquet"])
def test_shards_are_kept_until_the_results_are_on_the_disk(
    flag: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if flag == "--parquet":
        pytest.importorskip("pyarrow")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert main([*words, flag, str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "x.parts keeps the complete shards" in said
    assert not (tmp_path / "x").exists()
    assert len(list((tmp_path / "x.parts").iterdir())) == 6
