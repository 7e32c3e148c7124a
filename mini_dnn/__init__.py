"""mini_dnn: a small network framework whose heavy operations run in CUDA kernels that you can read.

Each operation of `mini_dnn.ops` is a function here, such as ``mini_dnn.softmax(x, device="emulator")``; see
`mini_dnn.interop.function.Function`.
"""

from pathlib import Path
from typing import Any

from mini_dnn.device import open_device as open_device
from mini_dnn.errors import MiniDnnError as MiniDnnError


def __getattr__(name: str) -> Any:
    # `from mini_dnn import *` and `help(mini_dnn)` use this list, which includes the operations
    if name == "__all__":
        return __dir__()
    if not Path(__file__).with_name("ops").joinpath(f"{name}.py").is_file():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported here, so that importing a part does not load everything
    from mini_dnn.interop.function import Function
    from mini_dnn.ops import find, names

    if name not in names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Found directly the next time. All threads get the same object, as pickle requires
    return globals().setdefault(name, Function(find(name)))


def __dir__() -> list[str]:
    from mini_dnn.ops import names

    return sorted(["MiniDnnError", "open_device", *names()])
