"""The sample of the tests that ``make test`` runs."""

import pytest
from sampling import CASES, EXHAUSTIVE, sample

SOURCE = """
import pytest

@pytest.mark.parametrize("case", range(10))
def test_cases(case): ...

@pytest.mark.sampled_by("name")
@pytest.mark.parametrize("name", "abc")
@pytest.mark.parametrize("size", range(3))
def test_names(name, size): ...

@pytest.mark.exhaustive
@pytest.mark.parametrize("case", range(17))
def test_exhaustive(case): ...

def test_alone(): ...
"""


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> list[pytest.Item]:
    file = tmp_path_factory.mktemp("sample") / "test_source.py"
    file.write_text(SOURCE)
    module = pytest.Module.from_parent(request.session, path=file)
    return list(request.session.genitems(module))


def test_its_parts(items: list[pytest.Item]) -> None:
    kept = sample(items, "seed")
    names = [item.name for item in kept]
    of = [name.partition("[")[0] for name in names]
    assert kept == [item for item in items if item in kept]
    assert of.count("test_cases") == -(-10 // CASES)
    assert sorted(name[-2] for name in names if name.startswith("test_names")) == ["a", "b", "c"]
    assert of.count("test_exhaustive") == -(-17 // EXHAUSTIVE)
    assert of.count("test_alone") == 1


def test_a_seed_repeats_it_and_many_run_everything(items: list[pytest.Item]) -> None:
    assert sample(items, "1") == sample(list(reversed(items)), "1")[::-1]
    assert sample(items, "1") != sample(items, "2")
    assert {item for seed in range(100) for item in sample(items, str(seed))} == set(items)
