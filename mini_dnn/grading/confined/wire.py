"""The fixed layout in which the grader and its confined processes talk over pipes.

Request: ``uint64`` bytes of JSON, ``uint64`` bytes of arrays, the JSON, the arrays. Reply: ``uint32`` status,
``uint64`` bytes, the bytes. Little-endian. A process that computes a convolution replies y as float32, and
nothing that the grader reads is ever unpickled, imported or run.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

import numpy as np

REQUEST, REPLY = struct.Struct("<QQ"), struct.Struct("<IQ")
OK, FAILED = 0, 1  # statuses: bytes as asked for; text that says what went wrong
MAX_ERROR_BYTES = 64 * 1024


def request(message: dict[str, Any], *arrays: np.ndarray) -> list[memoryview]:
    """A request in parts to be written."""
    text = json.dumps(message).encode()
    data = [np.ascontiguousarray(array).data.cast("B") for array in arrays]
    head = REQUEST.pack(len(text), sum(part.nbytes for part in data))
    return [memoryview(head + text), *data]


def receive(file: int) -> tuple[dict[str, Any], bytearray] | None:
    """The next request: its message, and the bytes of its arrays; None when there will be none."""
    head = _read(file, REQUEST.size)
    if not head:
        return None
    text_bytes, data_bytes = REQUEST.unpack(head)
    text = _read(file, text_bytes)
    return json.loads(text), _read(file, data_bytes)


def reply(file: int, status: int, data: bytes | memoryview) -> None:
    """Answer a request."""
    for part in (memoryview(REPLY.pack(status, len(data))), memoryview(data)):
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
