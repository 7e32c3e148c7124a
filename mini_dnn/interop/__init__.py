"""Arrays of other libraries: operations of arrays on a GPU, where they lie; CuPy's and PyTorch's own ways.

`mini_dnn.interop.function` is what ``from mini_dnn import ...`` gives. `mini_dnn.interop.cupy` and
`mini_dnn.interop.torch` are imported by those who use them.
"""

from mini_dnn.interop.calls import release

__all__ = ["release"]
