"""The GPUs of this host for a run with one process each, and the CPU cores close to each GPU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.device import Device, open_device
from mini_dnn.errors import DeviceError, UsageError

ALL = "all"
GPUS = "several GPUs, a process each: all, how many, or their numbers with commas, such as 0,2"  # for --gpus
MOST = 64  # on one host
SYSFS = Path("/sys/bus/pci/devices")
EXPECTED = "expected 'all', a number of GPUs such as 2, or the numbers of GPUs with commas, such as 0,2"


@dataclass(frozen=True)
class Place:
    """The device of one of several processes.

    Parameters
    ----------
    device
        ``"cuda"`` or ``"emulator"``.
    index
        The number of the GPU.
    cores
        The cores for the process and its children.
    """

    device: str
    index: int
    cores: tuple[int, ...]

    def __str__(self) -> str:
        """The place in words."""
        return f"GPU {self.index}" if self.device == "cuda" else f"emulator {self.index}"

    def settle(self) -> None:
        """Bind this process to its cores, so that it allocates memory close to its GPU."""
        if self.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cores)

    def open(self) -> Device:
        """Open the device."""
        return open_device(self.device, self.index)


def places(text: str, device: str) -> list[Place]:
    """Return the places that ``--gpus`` selects.

    Parameters
    ----------
    text
        ``"all"``, the number of GPUs, or their indices separated by commas. If an index occurs twice, two
        processes share that GPU.
    device
        ``"emulator"``; any other value stands for GPUs.

    Raises
    ------
    UsageError
        The text is invalid, or there is no such GPU.
    DeviceError
        There is no GPU.
    """
    mine = sorted(os.sched_getaffinity(0))
    if device == "emulator":
        numbers = _numbers(text, len(mine))
        near = [tuple(mine)] * len(numbers)
    else:
        buses = _buses(text)
        numbers = _numbers(text, len(buses))
        if wrong := [n for n in numbers if n >= len(buses)]:
            known = "only GPU 0" if len(buses) == 1 else f"the GPUs 0 to {len(buses) - 1}"
            raise UsageError(f"--gpus {text}: there is no GPU {wrong[0]}; this machine has {known}")
        near = [_near(buses[n], mine) for n in numbers]
        device = "cuda"
    cores = share(near)
    return [Place(device, n, some) for n, some in zip(numbers, cores, strict=True)]


def share(near: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the cores of each place. Places that are close to the same cores share them evenly.

    If there are fewer cores than places, each place gets all of them.
    """
    sharing, taken = Counter(near), Counter[tuple[int, ...]]()
    found = []
    for cores in near:
        parts, part = sharing[cores], taken[cores]
        taken[cores] += 1
        first, last = part * len(cores) // parts, (part + 1) * len(cores) // parts
        found.append(cores[first:last] if len(cores) >= parts else cores)
    return found


def parse_cores(text: str) -> set[int]:
    """Parse a list of numbers in the format of the Linux kernel: ``0-3,8``."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _numbers(text: str, count: int) -> list[int]:
    """Return the requested indices of GPUs, which start at 0."""
    if text == ALL:
        return list(range(count))
    words = text.removesuffix(",").split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise UsageError(f"--gpus {text}: {EXPECTED}")
    numbers = [int(word) for word in words]
    if "," in text:  # "1," is GPU 1 only
        return numbers
    if not 1 <= numbers[0] <= MOST:
        raise UsageError(f"--gpus {text}: expected 1 to {MOST} GPUs; '{text},' is the GPU of that number")
    return list(range(numbers[0]))


def _buses(text: str) -> list[str]:
    """The PCI bus ids of all GPUs."""
    from mini_dnn.device.cuda_driver import bus_ids

    try:
        return bus_ids()
    except DeviceError as error:
        raise DeviceError(
            f"--gpus {text}: {error}. '--device emulator' runs the same processes without a GPU"
        ) from error


def _near(bus: str, mine: Sequence[int]) -> tuple[int, ...]:
    """The cores of this process that are close to a GPU, or all of them if the system does not say."""
    try:
        local = parse_cores((SYSFS / bus.lower() / "local_cpulist").read_text())
    except (OSError, ValueError):
        local = set()
    return tuple(core for core in mine if core in local) or tuple(mine)
