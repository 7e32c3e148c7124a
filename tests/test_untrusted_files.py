"""Files of the wrong kind, and damaged ones, cause neither waiting, nor full memory, nor a traceback."""

import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from training_samples import trainer

from mini_dnn.cli.common import check_output
from mini_dnn.datasets import fashion_mnist, storage
from mini_dnn.errors import DataError, UsageError, WeightsError
from mini_dnn.grading import rubric
from mini_dnn.nn.files import FORMAT, checksum, write_arrays
from mini_dnn.nn.layers import Flatten, Linear, Softmax
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.nn.weights import WeightsInfo as Info
from mini_dnn.nn.weights import load, save, values
from mini_dnn.paths import open_regular, read_regular
from mini_dnn.report.load import load as load_results
from mini_dnn.work import read_profile

RECIPE = {"source": "a.gz md5:1"}


def odd_files(folder: Path) -> list[Path]:
    """A pipe without a writer, a device that never ends, a link to one, and a folder."""
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/dev/zero")
    (folder / "folder").mkdir()
    return [folder / "pipe", Path("/dev/zero"), folder / "link", folder / "folder"]


def test_no_reader_waits_for_a_pipe_or_reads_a_device(tmp_path: Path) -> None:
    for path in odd_files(tmp_path):
        with pytest.raises(OSError, match=r"a pipe|a device|Is a directory"):
            open_regular(path)
        with pytest.raises(WeightsError, match=r"cannot use .* as weights"):
            load(path, lenet.build(np.random.default_rng(0)))
        with pytest.raises(DataError, match="cannot be read"):
            load_results([path])
        assert storage.read(path, RECIPE) is None
        for read in (rubric.load, lambda path: read_profile(path, "slurm")):
            with pytest.raises(UsageError, match=r"a pipe|a device|Is a directory"):
                read(path)
        name = fashion_mnist.PUBLISHED.splits["test"][0].packed_name
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(path)
        with pytest.raises(DataError, match="cannot be read"):
            fashion_mnist.load("test", tmp_path, tmp_path / "data")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse file
    with pytest.raises(OSError, match=r"1,099,511,627,776 bytes; the limit is 100"):
        read_regular(path, 100)
    with pytest.raises(WeightsError, match=r"1,099,511,627,776 bytes; the limit .*is [\d,]+"):
        load(path, lenet.build(np.random.default_rng(0)))


def network_file(path: Path, change: Callable[[h5py.File], None]) -> None:
    """A file of weights that is valid, including checksum and attributes, except for one change."""
    network = lenet.build(np.random.default_rng(1))
    save(path, network, Info("synthetic", {}, 0, "made up"))
    with h5py.File(path, "r+") as file:
        change(file)


def external(file: h5py.File) -> None:
    other = Path(file.filename).with_name("other.h5")
    with h5py.File(other, "w") as there:
        there["bias"] = file["fc2/bias"][...]
    del file["fc2/bias"]
    file["fc2/bias"] = h5py.ExternalLink(str(other), "/bias")


def soft(file: h5py.File) -> None:
    file.move("fc2/bias", "elsewhere")
    file["fc2/bias"] = h5py.SoftLink("/elsewhere")


def replaced(**how: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        bias = file["fc2/bias"][...]
        del file["fc2/bias"]
        file.create_dataset("fc2/bias", bias.shape, bias.dtype, **how)

    return change


def raw(file: h5py.File) -> None:
    other = Path(file.filename).with_name("raw")
    other.write_bytes(bytes(40))
    replaced(external=[(str(other), 0, 40)])(file)


def virtual(file: h5py.File) -> None:
    other = Path(file.filename).with_name("other.h5")
    with h5py.File(other, "w") as there:
        there["bias"] = file["fc2/bias"][...]
    del file["fc2/bias"]
    layout = h5py.VirtualLayout((10,), np.float32)
    layout[:] = h5py.VirtualSource(str(other), "bias", (10,))
    file.create_virtual_dataset("fc2/bias", layout)


def group(file: h5py.File) -> None:
    del file["fc2/bias"]
    file.create_group("fc2/bias")


def text(file: h5py.File) -> None:
    file.attrs["command"] = "of any length"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (external, "'bias' is a link, and links are not followed"),
        (soft, "'bias' is a link"),
        (raw, "'fc2/bias' is stored in another file"),
        (virtual, "'fc2/bias' is stored in another file"),
        (replaced(compression="gzip"), "takes 0 bytes in the file and 40 in memory"),
        (replaced(chunks=(10,), maxshape=(None,)), "takes 0 bytes in the file and 40 in memory"),
        (replaced(), "takes 0 bytes in the file and 40 in memory"),  # never written
        (group, "'fc2.bias' is missing"),
        (text, "the attribute 'command' is neither a number nor a string of fixed length"),
    ],
)
def test_weights_are_plain_arrays_of_the_file(
    change: Callable[[h5py.File], None], message: str, tmp_path: Path
) -> None:
    network_file(tmp_path / "w.h5", change)
    with pytest.raises(WeightsError, match=message):
        load(tmp_path / "w.h5", lenet.build(np.random.default_rng(0)))


def test_a_small_cache_does_not_become_gigabytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its checksum is right, because whoever makes such a file can compute it."""
    count = 500_000  # 3.7 GB
    for at, how in enumerate([{}, {"compression": "gzip", "chunks": (1000, 1, 86, 86)}]):
        path = tmp_path / f"{at}.h5"
        with h5py.File(path, "w", userblock_size=512) as file:
            file.create_dataset("images", (count, 1, 86, 86), np.uint8, **how)
            file.create_dataset("labels", data=np.zeros(count, np.uint8))
            file.attrs.update(RECIPE)
        with path.open("r+b") as sealed:
            sealed.write(storage._seal(path))
        assert path.stat().st_size < 1 << 20
        assert storage.read(path, RECIPE) is None
        assert "'images' takes 0 bytes in the file and 3,698,000,000 in memory" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"identity": 3}', "[" * 100_000, '{"identity": {}}'])
def test_a_checkpoint_whose_state_makes_no_sense(state: str, tmp_path: Path) -> None:
    learner = trainer()
    architecture = learner.network.architecture
    write_arrays(tmp_path / "c.h5", "checkpoint", architecture, learner._arrays(), {"state": state})
    with pytest.raises(WeightsError, match=r"its state is not valid|no HDF5 file"):
        learner.restore(tmp_path / "c.h5")


def test_attributes_that_make_no_sense(tmp_path: Path) -> None:
    network, other = (lenet.build(np.random.default_rng(seed)) for seed in (1, 2))
    before = {name: array.copy() for name, array in values(network).items()}
    write_arrays(tmp_path / "w.h5", "weights", network.architecture, values(other), {"seed": np.inf})
    with pytest.raises(WeightsError, match="an attribute is missing or not valid"):
        load(tmp_path / "w.h5", network)
    for name, array in values(network).items():
        np.testing.assert_array_equal(array, before[name])
    assert len(checksum(values(network), {"format": FORMAT})) == 64


def test_outputs_are_refused_before_the_work(tmp_path: Path) -> None:
    pipe, device, _, _ = odd_files(tmp_path)
    for path in (pipe, device):
        with pytest.raises(UsageError, match="is not a regular file; name one"):
            check_output("--out", path, force=False)
    check_output("--out", tmp_path / "out.json", force=False)
    with pytest.raises(UsageError, match="cannot be written"):
        check_output("--out", Path("/proc/self/out.json"), force=False)
    assert not (tmp_path / "out.json").exists()


# Mutations


def mutations(whole: bytes, count: int) -> Iterator[bytes]:
    """The bytes with some of them changed, removed, doubled, or truncated."""
    rng = random.Random(count)
    for _ in range(count):
        at, length = rng.randrange(len(whole)), rng.choice([1, 1, 1, 4, 8, 100, 4096])
        middle = [rng.randbytes(length), b"", whole[at : at + length] * 2, bytes(length)][rng.randrange(4)]
        yield whole[:at] if rng.random() < 0.05 else whole[:at] + middle + whole[at + length :]


def within(nbytes: int, work: Callable[[], Any]) -> Any:
    """The result of ``work``, which may allocate at most ``nbytes``."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    found = work()
    assert tracemalloc.get_traced_memory()[1] - before <= nbytes
    return found


def traced_at_first(contents: Iterator[bytes]) -> Iterator[bytes]:
    """The contents; the memory that the first ones use is traced, which is slow."""
    tracemalloc.start()
    for at, content in enumerate(contents):
        if at == TRACED:
            tracemalloc.stop()
        yield content
    tracemalloc.stop()


TRACED = 30
COUNTS = [60, pytest.param(500, marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("count", COUNTS)
def test_no_mutation_of_weights_changes_them(count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    network = Network({"flat": Flatten(), "fc": Linear(120, 100, rng, np.float32), "p": Softmax()})
    save(tmp_path / "w.h5", network, Info("synthetic", {100: 0.5}, 0, "made up"))
    whole = (tmp_path / "w.h5").read_bytes()
    info = load(tmp_path / "w.h5", network)
    right = {name: value.tobytes() for name, value in values(network).items()}

    def taken() -> bool:
        try:
            return load(tmp_path / "w.h5", network) == info
        except WeightsError as error:
            return "\n" not in str(error)

    for content in traced_at_first(mutations(whole, count)):
        (tmp_path / "w.h5").write_bytes(content)
        assert within(2 * len(whole), taken)
        assert {name: value.tobytes() for name, value in values(network).items()} == right


@pytest.mark.parametrize("count", COUNTS)
def test_no_mutation_of_cached_images_changes_them(count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = (rng.integers(0, 256, (300, 1, 86, 86), np.uint8), np.zeros(300, np.uint8))
    path = tmp_path / "set.h5"
    storage.write(path, RECIPE, pixels)
    whole = path.read_bytes()
    assert storage.read(path, RECIPE) is not None
    for content in traced_at_first(mutations(whole, count)):
        path.write_bytes(content)
        found = within(2 * len(whole), lambda: storage.read(path, RECIPE))
        assert found is None or all(map(np.array_equal, found, pixels))
