"""m1/cpu: the convolution in NumPy, the reference that a GPU has to beat.

From the definition it is six loops::

    for n, m, p, q in np.ndindex(N, M, P, Q):
        for c, r, s in np.ndindex(C, R, S):
            y[n, m, p, q] += x[n, c, p + r, q + s] * w[m, c, r, s]

Here the loops run in BLAS: one slice of the batch after the other is unrolled and multiplied, so that the
memory is limited for every batch size.
"""

from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.variant import Variant

VARIANT = Variant(
    op="conv2d",
    host=conv2d_forward,
    idea="NumPy: unroll a slice of the batch, multiply in BLAS",
)
