"""Host code that several variants share: launches of the kernels in headers of ``mini_dnn/include``."""
