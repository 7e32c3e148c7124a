"""The fixed layout in which the grader and its confined processes talk over pipes.

Request: ``uint64`` bytes of JSON, ``uint64`` bytes of arrays, the JSON, the arrays. Reply: ``uint32`` status,
``uint64`` bytes, the bytes. Little-endian. Arrays are their bytes alone, one after the other: both sides know
the problem, and so their order, shapes and types. Nothing that the grader reads is ever unpickled, imported
or run.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops import Array

REQUESTS, REPLIES = 3, 4  # file descriptors in a confined process
REQUEST, REPLY = struct.Struct("<QQ"), struct.Struct("<IQ")
OK, FAILED = 0, 1  # statuses: bytes as asked for; text that says what went wrong
MAX_ERROR_BYTES = 64 * 1024


def request(message: dict[str, Any], *arrays: np.ndarray) -> list[memoryview]:
    """A request in parts to be written."""
    text = json.dumps(message).encode()
    data = packed(arrays)
    head = REQUEST.pack(len(text), sum(part.nbytes for part in data))
    return [memoryview(head + text), *data]


def packed(arrays: Iterable[np.ndarray]) -> list[memoryview]:
    """The bytes of arrays."""
    return [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]


def unpacked(data: bytes | bytearray, arrays: Mapping[str, Array]) -> dict[str, np.ndarray]:
    """The arrays whose bytes these are.

    Raises
    ------
    ShapeError
        There are more bytes, or fewer.
    """
    size = sum(array.nbytes for array in arrays.values())
    if len(data) != size:
        raise ShapeError(f"found {len(data)} bytes; expected {size}, those of {', '.join(arrays)}")
    found, rest = {}, memoryview(data)
    for name, array in arrays.items():
        values = np.frombuffer(rest[: array.nbytes], array.dtype).reshape(array.shape)
        found[name] = np.require(values, requirements="A")  # the bytes before may be an odd number of them
        rest = rest[array.nbytes :]
    return found


def receive(file: int) -> tuple[dict[str, Any], bytearray] | None:
    """The next request: its message, and the bytes of its arrays; None when there will be none."""
    head = _read(file, REQUEST.size)
    if not head:
        return None
    text_bytes, data_bytes = REQUEST.unpack(head)
    text = _read(file, text_bytes)
    return json.loads(text), _read(file, data_bytes)


def reply(file: int, status: int, data: Sequence[bytes | memoryview]) -> None:
    """Answer a request with the bytes of all parts."""
    head = REPLY.pack(status, sum(map(len, data)))
    for some in (head, *data):
        part = memoryview(some)
        while part:
            part = part[os.write(file, part) :]


def _read(file: int, size: int) -> bytearray:
    """So many bytes; fewer, and none, only if the other side has ended."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = os.readv(file, [view])
        if not count:
            return bytearray()
        view = view[count:]
    return data
