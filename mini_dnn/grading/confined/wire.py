"""The binary layout of the messages between the grader and its confined processes.

A request is: ``uint64`` bytes of JSON, ``uint64`` bytes of arrays, the JSON, the arrays. A reply is:
``uint32`` status, ``uint64`` bytes, the bytes. All numbers are little-endian. Arrays are sent as bytes only,
one after the other, because both sides know the problem and therefore the order, shapes and types. The grader
never unpickles, imports or runs what it reads.
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
OK, FAILED = 0, 1  # statuses: the requested bytes, or a text with the error
MAX_ERROR_BYTES = 64 * 1024


def request(message: dict[str, Any], *arrays: np.ndarray) -> list[memoryview]:
    """Encode a request as parts to write."""
    text = json.dumps(message).encode()
    data = packed(arrays)
    head = REQUEST.pack(len(text), sum(part.nbytes for part in data))
    return [memoryview(head + text), *data]


def packed(arrays: Iterable[np.ndarray]) -> list[memoryview]:
    """Return the bytes of arrays."""
    return [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]


def unpacked(data: bytes | bytearray, arrays: Mapping[str, Array]) -> dict[str, np.ndarray]:
    """Split bytes into arrays.

    Raises
    ------
    ShapeError
        There are too many or too few bytes.
    """
    size = sum(array.nbytes for array in arrays.values())
    if len(data) != size:
        raise ShapeError(f"found {len(data)} bytes; expected {size}, those of {', '.join(arrays)}")
    found, rest = {}, memoryview(data)
    for name, array in arrays.items():
        values = np.frombuffer(rest[: array.nbytes], array.dtype).reshape(array.shape)
        found[name] = np.require(values, requirements="A")  # an odd number of bytes may come before it
        rest = rest[array.nbytes :]
    return found


def receive(file: int) -> tuple[dict[str, Any], bytearray] | None:
    """Return the next request, its message and the bytes of its arrays, or None if there are no more."""
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
    """Read ``size`` bytes. Fewer bytes are returned only if the other side has ended."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = os.readv(file, [view])
        if not count:
            return bytearray()
        view = view[count:]
    return data
