"""Copies from one GPU to another by the driver, without a way through host memory where they are linked."""

from __future__ import annotations

from typing import Any

from mini_dnn.device.bindings import reason
from mini_dnn.errors import LaunchError


def connect(driver: Any, receiver: int, sender: int, its_context: int) -> None:
    """Let the current context, which is of GPU ``receiver``, reach the memory of GPU ``sender``, if it can.

    Otherwise the driver takes copies through host memory.

    Raises
    ------
    LaunchError
        The driver fails.
    """
    status, can = driver.cuDeviceCanAccessPeer(receiver, sender)
    if not reason(driver, status) and can:
        (status,) = driver.cuCtxEnablePeerAccess(its_context, 0)
        if status == driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
            return
    if failed := reason(driver, status):
        raise LaunchError(f"GPU {receiver} cannot be given access to the memory of GPU {sender}: {failed}")


def copy(driver: Any, to: tuple[int, int], of: tuple[int, int], nbytes: int, stream: int) -> None:
    """Copy bytes to an address and its context from another pair of them, on a stream of the first one.

    Raises
    ------
    LaunchError
        The driver refuses.
    """
    (status,) = driver.cuMemcpyPeerAsync(*to, *of, nbytes, stream)
    if failed := reason(driver, status):
        raise LaunchError(f"{nbytes} bytes cannot be copied from one GPU to another: {failed}")
