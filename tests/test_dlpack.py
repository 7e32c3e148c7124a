"""Exchange of arrays with other libraries in the same memory. NumPy is the other library."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from mini_dnn.errors import ShapeError
from mini_dnn.interop import dlpack

HOST = (dlpack.CPU, 0)


class Owner:
    """The owner of an array's memory."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.capsules = values, 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST

    def __dlpack__(self, **asked: Any) -> Any:
        v = self.values
        return dlpack.exported(v.ctypes.data, v.shape, v.dtype.name, HOST, self)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 4, 1, 5)])
def test_there_and_back(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    theirs = np.from_dlpack(Owner(values))
    assert np.array_equal(theirs, values)
    assert (theirs.dtype, theirs.ctypes.data) == (values.dtype, values.ctypes.data)
    view = dlpack.imported(theirs.copy().__dlpack__())
    assert (view.shape, view.dtype, view.device, view.is_dense) == (shape, dtype, HOST, True)


def test_where_a_part_begins() -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert dlpack.imported(values[2:].__dlpack__()).address == values.ctypes.data + 2 * 24
    assert dlpack.imported(values[2:].__dlpack__()).is_dense
    assert not dlpack.imported(values[:, 2:].__dlpack__()).is_dense
    assert not dlpack.imported(values.T.__dlpack__()).is_dense
    assert dlpack.imported(values[:1].T[:, :].__dlpack__()).is_dense  # (6, 1)


@pytest.mark.parametrize("consumed", [True, False])
def test_an_owner_lives_as_long_as_the_other_side_needs_it(consumed: bool) -> None:
    owner = Owner(np.ones(3, np.float32))
    alive, theirs = weakref.ref(owner), np.from_dlpack(owner) if consumed else owner.__dlpack__()
    del owner
    gc.collect()
    assert alive() is not None
    assert len(dlpack._exported) == 1
    del theirs
    gc.collect()
    assert alive() is None
    assert not dlpack._exported


def test_what_we_take_is_let_go() -> None:
    owner = Owner(np.ones(3, np.float32))
    view = dlpack.imported(owner.__dlpack__())
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


def test_types_without_a_name_are_refused() -> None:
    with pytest.raises(ShapeError, match="type code 5 with 1 lanes"):  # complex
        dlpack.imported(np.ones(3, np.complex64).__dlpack__())
