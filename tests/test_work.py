"""Lists of items on local workers: each result is computed once, even if workers are killed."""

from __future__ import annotations

import runpy
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from scale_kills import killed
from waiting import wait_until

from mini_dnn.errors import DeviceError, UsageError
from mini_dnn.paths import ROOT
from mini_dnn.work import Item, Local, Profile, Work, find_engine, run_items
from mini_dnn.work.engine import Engine
from mini_dnn.work.items import digest
from mini_dnn.work.local import Inside

SAMPLES = "scale_items"


@pytest.fixture(autouse=True)
def workers_find_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks"))


def work(folder: Path, values: list[Any], kind: str = "logged", **fields: Any) -> Work:
    common: Mapping[str, Any] = {"log": str(folder / "log"), **fields.pop("common", {})}
    items = [Item(f"item{at}", value) for at, value in enumerate(values)]
    return Work(f"{SAMPLES}:{kind}", items, folder / "results", common, **fields)


def logged(folder: Path) -> Counter[str]:
    """The number of times that each value was computed."""
    file = folder / "log"
    return Counter(file.read_text().split()) if file.exists() else Counter()


@pytest.mark.parametrize("workers", [1, 2])
def test_each_item_has_its_result_and_the_same_run_computes_nothing(workers: int, tmp_path: Path) -> None:
    heard: list[tuple[str, bool]] = []
    todo = work(tmp_path, list(range(5)))
    for known in (False, True):
        heard.clear()
        found = run_items(
            todo, Local(workers), tmp_path / "jobs", lambda name, _, before: heard.append((name, before))
        )
        assert {name: record.value[0] for name, record in found.results.items()} == {
            f"item{at}": at for at in range(5)
        }
        assert sorted(heard) == [(f"item{at}", known) for at in range(5)]
    assert logged(tmp_path) == {str(at): 1 for at in range(5)}
    assert not list((tmp_path / "jobs/chunks").iterdir()), "what described chunks is removed"


def test_a_run_with_all_results_does_not_wait_for_its_engine(tmp_path: Path) -> None:
    class Silent(Inside):
        def submit(self, *args: Any, **words: Any) -> Future[Any]:
            super().submit(*args, **words)
            return Future()  # as if the controller of the cluster never answered

    class Cluster(Engine):
        def open(self, folder: Path) -> Executor:
            return Silent()

    engine = Cluster()
    engine.poll_s = 0.01
    assert len(run_items(work(tmp_path, [1, 2]), engine, tmp_path / "jobs").results) == 2


@pytest.mark.parametrize(
    ("number", "why"),
    [
        *(
            (number, "the list has 2 chunks: expected a number from 0 to 1")
            for number in ("", "2", "-1", "1.0")
        ),
        ("1", "the folder .* does not describe it"),
    ],
)
def test_a_script_that_slurm_did_not_start_says_so(
    number: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list.txt").write_text("one\ntwo\n")
    monkeypatch.setattr(sys, "argv", ["work", str(tmp_path), str(tmp_path / "list.txt"), number])
    with pytest.raises(SystemExit, match=rf"there is no chunk '{number}' .*{why}\. .* with sbatch"):
        runpy.run_module("mini_dnn.work", run_name="__main__")


def test_the_command_for_mpi_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of the command line may contain spaces."""
    futures, mpi = ModuleType("mpi4py.futures"), ModuleType("mpi4py.MPI")
    mpi.COMM_WORLD = SimpleNamespace(Get_size=lambda: 1)  # type: ignore[attr-defined]
    for name, module in (("mpi4py", ModuleType("mpi4py")), ("mpi4py.futures", futures), ("mpi4py.MPI", mpi)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", ["run.py", "grade", "Ann Lee", "--executor", "mpi"])
    with pytest.raises(UsageError, match=r"mpi4py\.futures run\.py grade 'Ann Lee' --executor mpi$"):
        find_engine("mpi", Profile())


def test_what_changed_is_computed_again(tmp_path: Path) -> None:
    run_items(work(tmp_path, [1, 2]), Local(), tmp_path / "jobs")
    run_items(work(tmp_path, [1, 3]), Local(), tmp_path / "jobs")
    assert logged(tmp_path) == {"1": 1, "2": 1, "3": 1}
    run_items(work(tmp_path, [1, 3], code="2"), Local(), tmp_path / "jobs")
    run_items(work(tmp_path, [1, 3], code="2", seed=7), Local(), tmp_path / "jobs")
    assert logged(tmp_path) == {"1": 3, "2": 1, "3": 3}


def test_seeds_are_of_items_and_not_of_runs(tmp_path: Path) -> None:
    seeds = []
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        found = run_items(work(tmp_path / run, [1, 2]), Local(), tmp_path / run / "jobs")
        seeds.append([record.value[1] for record in found.results.values()])
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


def test_a_damaged_result_is_computed_again(tmp_path: Path) -> None:
    run_items(work(tmp_path, [1]), Local(), tmp_path / "jobs")
    (tmp_path / "results/item0.json").write_text('{"key": ')
    assert run_items(work(tmp_path, [1]), Local(), tmp_path / "jobs").results["item0"].value[0] == 1


def test_an_error_is_of_one_item(tmp_path: Path) -> None:
    todo = work(tmp_path, ["one", "raises", "two"], "moody")
    found = run_items(todo, Local(), tmp_path / "jobs")
    assert found.failures == {"item1": "ValueError: so it goes"}
    assert sorted(found.results) == ["item0", "item2"]


def test_what_kills_its_worker_is_given_up_and_the_others_are_not(tmp_path: Path) -> None:
    todo = work(tmp_path, ["one", "kills", "two", "three"], "moody")
    found = run_items(todo, Local(2), tmp_path / "jobs")
    assert sorted(found.results) == ["item0", "item2", "item3"]
    assert list(found.failures) == ["item1"]
    assert "its worker died" in found.failures["item1"]


def test_a_setup_that_fails_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="there is no device"):
        run_items(work(tmp_path, [1, 2], "refused"), Local(), tmp_path / "jobs")


def test_a_worker_is_set_up_once_for_all_its_chunks(tmp_path: Path) -> None:
    chunks: list[str] = []

    class Counting(Local):
        def open(self, folder: Path) -> Executor:
            pool = super().open(folder)
            submit = pool.submit

            def counted(function: Any, place: str, name: str, **more: Any) -> Future[None]:
                chunks.append(name)
                return submit(function, place, name, **more)

            pool.submit = counted  # type: ignore[method-assign, assignment]
            return pool

    found = run_items(work(tmp_path, list(range(40)), "opened"), Counting(2), tmp_path / "jobs")
    processes = {str(record.value) for record in found.results.values()}
    assert len(chunks) > 2
    assert sorted((tmp_path / "log").read_text().split()) == sorted(
        f"{sign}{p}" for sign in "+-" for p in processes
    )


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    go = tmp_path / "go"
    todo = work(tmp_path, [1], common={"wait": str(go)})
    first = threading.Thread(target=run_items, args=(todo, Local(), tmp_path / "jobs"))
    first.start()
    try:
        wait_until(lambda: list((tmp_path / "jobs").glob("chunks/*.began")))
        with pytest.raises(UsageError, match="another run is using"):
            run_items(todo, Local(), tmp_path / "jobs")
    finally:
        go.touch()
        first.join()


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_names_are_file_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a file name"):
        Work("m:f", [Item(name, 1)], tmp_path)


def test_two_items_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two items are called 'a'"):
        Work("m:f", [Item("a", 1), Item("a", 2)], tmp_path)


def test_the_digest_is_of_content_and_names(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    first = digest(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert digest(tmp_path) == first
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert digest(tmp_path) != first


@pytest.mark.exhaustive
def test_workers_that_are_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    """`benchmarks/scale_kills.py` repeats this fifty times.

    If killing is slow, all items may be done before.
    """
    found = killed(tmp_path, 6)
    assert found["kills"] > 0
    assert 0 < found["results_before_the_last_run"] <= found["items"]
    assert (found["lost"], found["results_written_twice"]) == (0, 0)
    assert found["begun_again_by_kill"] <= 2 * found["kills"]
