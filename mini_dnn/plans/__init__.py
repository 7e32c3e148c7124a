"""How kernels of the headers in ``mini_dnn/include`` are launched: the host halves of several variants."""
