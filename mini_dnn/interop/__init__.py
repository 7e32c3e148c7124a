"""Arrays of other libraries: operations on arrays of a GPU, in place, and operators for CuPy and PyTorch.

``from mini_dnn import ...`` returns objects of `mini_dnn.interop.function`. `mini_dnn.interop.cupy` and
`mini_dnn.interop.torch` have to be imported explicitly.
"""

from mini_dnn.interop.calls import release

__all__ = ["release"]
