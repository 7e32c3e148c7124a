"""The IDX format of MNIST and its kin: a magic number, big-endian sizes, then bytes.

Source: http://yann.lecun.com/exdb/mnist/, "The IDX file format": two zero bytes, a type code (0x08: unsigned
byte), the rank, then one 32-bit big-endian size per axis.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from mini_dnn.errors import DataError

_UNSIGNED_BYTE = 0x08


def parse(content: bytes, rank: int, what: str) -> np.ndarray:
    """Parse an IDX file of unsigned bytes.

    Parameters
    ----------
    content : bytes
        The whole file, unpacked.
    rank : int
        How many axes it must have: 3 for images, 1 for labels.
    what : str
        What an error calls the file.

    Returns
    -------
    ndarray of uint8
        Read-only, of the shape that the header states.

    Raises
    ------
    DataError
        The magic number or the length is wrong.
    """
    header = 4 + 4 * rank
    if len(content) < header:
        raise DataError(f"{what}: {len(content)} bytes, too short for an IDX header of {header} bytes")
    magic = bytes((0, 0, _UNSIGNED_BYTE, rank))
    if content[:4] != magic:
        raise DataError(
            f"{what}: starts with {content[:4].hex(' ')}, but an IDX file of bytes with {rank} "
            f"{'axis' if rank == 1 else 'axes'} starts with {magic.hex(' ')}"
        )
    shape = struct.unpack_from(f">{rank}I", content, 4)
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise DataError(
            f"{what}: its header states {' × '.join(map(str, shape))} bytes, so the file should have "
            f"{expected} bytes, but it has {len(content)}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
