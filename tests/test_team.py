"""Several GPUs of one host: the choice of GPUs, the cores next to each, and failures of one of them."""

import json
import os
import signal
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from mini_dnn.cli import main
from mini_dnn.device import Device, gpus
from mini_dnn.device.gpus import Place, parse_cores, places, share
from mini_dnn.errors import CheckError, DeviceError, LaunchError, UsageError
from mini_dnn.measuring import scaling
from mini_dnn.measuring.inference import find_step
from mini_dnn.measuring.scaling import Lap, Serving, rates
from mini_dnn.measuring.served import Served
from mini_dnn.running import team as team_module
from mini_dnn.running.team import Done, Team, Work
from mini_dnn.work.children import SPAWN, end_with_parent


@dataclass(frozen=True)
class Doubling:
    """Doubles each item.

    An item that is the name of a signal or of an error ends the process or raises the error.
    """

    folder: Path  # an item that has failed leaves a file here, so that it fails only once

    @contextmanager
    def __call__(self, device: Device) -> Iterator[Work]:
        assert device.name == "emulator"
        yield self.work

    def work(self, item: Any) -> Any:
        if isinstance(item, int):
            return 2 * item, os.getpid()
        seen = self.folder / item
        if item == "always" or not seen.exists():
            seen.touch()
            if item == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise LaunchError("the GPU has fallen off the bus")
        return item, os.getpid()


def emulators(count: int) -> list[Place]:
    return places(str(count), "emulator")


def test_results_come_in_order_and_each_failure_is_named(tmp_path: Path) -> None:
    """One of three processes is killed, and the driver of another reports an error.

    Few items are in flight.
    """
    said: list[str] = []
    items = [0, 1, "killed", 3, 4, 5, "failed", *range(7, 100)]
    count = ahead = 0

    def taken() -> Iterator[Any]:
        nonlocal count
        for item in items:
            count += 1
            yield item

    with Team(emulators(3), Doubling(tmp_path), said.append) as team:
        assert len(set(team.pids)) == 3
        assert os.getpid() not in team.pids
        known = {9: ("known", 0)}
        done: list[Done] = []
        for found in team.map(taken(), known.get):
            done.append(found)
            ahead = max(ahead, count - len(done))
        assert len(team.pids) == 1
    assert 1 < ahead <= 3 * team_module.AHEAD
    assert [found.item for found in done] == items
    assert [found.result[0] for found in done] == [
        "known" if item == 9 else item if isinstance(item, str) else 2 * item for item in items
    ]
    assert [found.item for found in done if found.place is None] == [9]
    assert len(said) == 2
    assert any(
        "its process ended unexpectedly" in line and "killed will be repeated by another GPU" in line
        for line in said
    )
    assert any("has fallen off the bus; failed will be repeated by another GPU" in line for line in said)


@pytest.mark.exhaustive
def test_an_item_that_makes_gpus_fail_ends_the_run(tmp_path: Path) -> None:
    said: list[str] = []
    with (
        Team(emulators(3), Doubling(tmp_path), said.append) as team,
        pytest.raises(DeviceError, match=r"always failed on .* GPUs: emulator \d: .*bus; emulator \d: .*bus"),
    ):
        list(team.map([1, "always", 2]))


@pytest.mark.exhaustive
def test_the_item_that_a_gpu_failed_with_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if the results of two items of one GPU arrive at once, in any order."""
    monkeypatch.setattr(team_module, "wait", lambda given, return_when: wait(given))
    said: list[str] = []
    with (
        Team(emulators(3), Doubling(tmp_path), said.append) as team,
        pytest.raises(DeviceError, match="always failed on several GPUs"),
    ):
        list(team.map([1, 2, 3, "always"]))
    assert len(said) == 2
    assert all("always will be repeated" in line for line in said)


@pytest.mark.parametrize(
    ("text", "numbers"), [("2", [0, 1]), ("0,2", [0, 2]), ("1,", [1]), ("0,0", [0, 0]), ("1", [0])]
)
def test_which_gpus(text: str, numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_buses", lambda text: ["0000:01:00.0"] * 3)
    assert [place.index for place in places(text, "auto")] == numbers
    assert [place.index for place in places(text, "emulator")] == numbers
    assert [str(place) for place in places("all", "cuda")] == ["GPU 0", "GPU 1", "GPU 2"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4", "there is no GPU 3; this machine has the GPUs 0 to 2"),
        ("two", "expected 'all', a number of GPUs"),
        ("0", "expected 1 to 64 GPUs; '0,' is the GPU of that number"),
        ("-1", "expected 'all'"),
        ("", "expected 'all'"),
        ("0,,1", "expected 'all'"),
        ("0,7", "there is no GPU 7"),
    ],
)
def test_which_gpus_there_are_not(text: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_buses", lambda text: ["0000:01:00.0"] * 3)
    with pytest.raises(UsageError, match=says):
        places(text, "cuda")


def test_cores_next_to_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs at one socket share its cores, and the third GPU has those of the other socket."""
    for bus, cores in (("0000:0a:00.0", "0-3,8"), ("0000:0b:00.0", "0-3,8"), ("0000:c1:00.0", "4-7")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "local_cpulist").write_text(f"{cores}\n")
    monkeypatch.setattr(gpus, "SYSFS", tmp_path)
    monkeypatch.setattr(gpus, "_buses", lambda text: ["0000:0A:00.0", "0000:0b:00.0", "0000:C1:00.0", "none"])
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4, 5, 6}
    )  # the cores that this process may use
    found = [place.cores for place in places("all", "cuda")]
    assert found == [(0, 1), (2, 3), (4, 5, 6), (0, 1, 2, 3, 4, 5, 6)]
    assert share([(0,), (0,)]) == [(0,), (0,)]
    assert parse_cores("0-2,5,7-7\n") == {0, 1, 2, 5, 7}
    assert parse_cores("\n") == set()


@dataclass(frozen=True)
class WithChildren:
    """Work that runs in child processes, which end when the work is closed."""

    @contextmanager
    def __call__(self, device: Device) -> Iterator[Work]:
        with ProcessPoolExecutor(1, SPAWN, end_with_parent) as pool:
            yield lambda item: pool.submit(abs, item).result()


@pytest.mark.exhaustive
def test_the_children_of_a_gpus_process_end_with_it() -> None:
    """They end whether it exits normally or is killed."""
    with Team(emulators(2), WithChildren(), print) as team:
        assert [done.result for done in team.map([-1, 2, -3, 4])] == [1, 2, 3, 4]
        pids = [*team.pids]
        children = [child for pid in pids for child in children_of(pid)]
        assert len(children) >= 2
        os.kill(pids[0], signal.SIGKILL)
        assert [done.result for done in team.map([-5, 6])] == [5, 6]
    wait_until(lambda: all(map(is_gone, (*pids, *children))))


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may have ended by now
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def is_gone(pid: int) -> bool:
    """Whether a process is gone, or dead and waiting for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.gpu
def test_two_processes_on_one_gpu(cuda: Device, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The two processes share its cores, and give the same accuracy as a single one."""
    found = []
    for more in (["--gpus", "1"], ["--gpus", "0,0"], []):
        words = ["infer", "--data", "synthetic", "--batch", "1000", "--resident", "whole", "--check", *more]
        assert main([*words, "--device", "cuda", "--json", str(tmp_path / "x.json")]) == 0
        found.append(json.loads((tmp_path / "x.json").read_text())["accuracy"])
    assert len(set(found)) == 1
    out = tmp_path / "rates.json"
    words = ["bench", "--throughput", "--data", "synthetic", "--send", "uint8", "--batch", "500"]
    assert main([*words, "--gpus", "0,0", "--out", str(out)]) == 0
    assert [row["gpus"] for row in json.loads(out.read_text())["rows"]] == [1, 2]
    assert "images/s" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_infer_cuts_a_batch_over_processes(tmp_path: Path) -> None:
    words = ["infer", "--data", "synthetic", "--batch", "10", "--resident", "whole", "--device", "emulator"]
    found = []
    for more in (["--gpus", "2"], []):
        assert main([*words, *more, "--json", str(tmp_path / "x.json")]) == 0
        found.append(json.loads((tmp_path / "x.json").read_text()))
    assert found[0]["accuracy"] == found[1]["accuracy"]
    assert found[0]["layers"][0]["gpus"] == 2


@pytest.mark.exhaustive
def test_rates_are_of_the_same_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "PASS_S", 0.0)
    served = Served(find_step("whole").folder, "uint8", 4)  # random images and weights
    with Team(emulators(2), Serving(served), print) as team:
        one, both = rates(team, 4, (1, 2))
        laps = [Lap(0, 1, outputs, 0) for outputs in ("these", "those")]
        monkeypatch.setattr(scaling, "_laps", lambda *order: laps)
        with pytest.raises(CheckError, match="different outputs"):
            list(rates(team, 4, (2,)))
    assert (one.gpus, len(one.per_s_of_each), one.per_s) == (1, 1, statistics.median(one.per_s_of_passes))
    assert (both.gpus, len(both.per_s_of_each)) == (2, 2)
    assert both.per_s == statistics.median(both.per_s_of_passes)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["infer", "--gpus", "2"], "--gpus 2 needs --resident"),
        (["bench", "--gpus", "2"], "--gpus needs --throughput"),
        (["bench", "--throughput", "--latency", "--gpus", "2"], "remove --latency and --growth"),
        (["classify", "x.png", "--impl", "cpu", "--gpus", "2"], "remove --gpus 2"),
        (["classify", "x.png", "--device", "emulator", "--gpus", "no"], "expected 'all'"),
    ],
)
def test_wrong_use(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert says in capsys.readouterr().err
