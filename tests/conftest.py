"""Fixtures that several test files share."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from mini_dnn.device import Device, open_device
from mini_dnn.errors import DeviceError


@pytest.fixture(scope="session")
def emulator() -> Iterator[Device]:
    with closing(open_device("emulator")) as opened:
        yield opened


@pytest.fixture(scope="session")
def cuda() -> Iterator[Device]:
    try:
        opened = open_device("cuda")
    except DeviceError as error:
        pytest.skip(f"no GPU: {error}")
    with closing(opened):
        yield opened


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Each device in turn; the GPU is skipped, with the reason, where there is none."""
    opened: Device = request.getfixturevalue(request.param)
    return opened


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
