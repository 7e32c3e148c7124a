"""Copies from one GPU to another, which avoid host memory if the GPUs are connected."""

from __future__ import annotations

from typing import Any

from mini_dnn.device.bindings import reason
from mini_dnn.errors import LaunchError


def connect(driver: Any, receiver: int, sender: int, its_context: int) -> None:
    """Let the current context, of GPU ``receiver``, access the memory of GPU ``sender`` if possible.

    Otherwise, the driver copies through host memory.

    Raises
    ------
    LaunchError
        A call of the driver failed.
    """
    status, can = driver.cuDeviceCanAccessPeer(receiver, sender)
    if not reason(driver, status) and can:
        (status,) = driver.cuCtxEnablePeerAccess(its_context, 0)
        if status == driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
            return
    if failed := reason(driver, status):
        raise LaunchError(f"GPU {receiver} cannot be given access to the memory of GPU {sender}: {failed}")


def copy(driver: Any, to: tuple[int, int], of: tuple[int, int], nbytes: int, stream: int) -> None:
    """Copy bytes between two pairs of address and context, on a stream of the first context.

    Raises
    ------
    LaunchError
        The driver refused the copy.
    """
    (status,) = driver.cuMemcpyPeerAsync(*to, *of, nbytes, stream)
    if failed := reason(driver, status):
        raise LaunchError(f"{nbytes} bytes cannot be copied from one GPU to another: {failed}")
