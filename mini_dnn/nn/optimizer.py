"""Optimisers that update parameters in place, and the one-cycle learning-rate schedule."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import cos, pi

import numpy as np

from mini_dnn.nn.layers import Parameter

Parameters = Mapping[str, Parameter]


class Adam:
    """Adam (Kingma and Ba, arXiv:1412.6980, algorithm 1); AdamW with a decay (arXiv:1711.05101).

    Parameters
    ----------
    parameters
        The parameters to train.
    beta1, beta2
        Decay of the running means of the gradient and of its square.
    epsilon
        Added to the root of the second mean.
    decay
        The weight decay: a step subtracts this fraction of each weight, times the rate. Arrays of one axis,
        such as biases, have no decay.
    """

    def __init__(
        self,
        parameters: Parameters,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> None:
        self.parameters = parameters
        self.beta1, self.beta2, self.epsilon, self.decay = beta1, beta2, epsilon, decay
        self._steps = np.zeros((), np.int64)
        self._mean = {name: np.zeros_like(p.value) for name, p in parameters.items()}
        self._square = {name: np.zeros_like(p.value) for name, p in parameters.items()}

    def step(self, rate: float) -> None:
        """Update every parameter from its gradient."""
        self._steps += 1
        t = int(self._steps)
        # Both means start at 0; these undo the bias of the first steps.
        mean_scale = 1 / (1 - self.beta1**t)
        square_scale = 1 / (1 - self.beta2**t)
        for name, parameter in self.parameters.items():
            mean, square = self._mean[name], self._square[name]
            mean += (1 - self.beta1) * (parameter.grad - mean)
            square += (1 - self.beta2) * (parameter.grad**2 - square)
            if self.decay and parameter.value.ndim > 1:
                parameter.value *= 1 - rate * self.decay
            parameter.value -= rate * mean_scale * mean / (np.sqrt(square * square_scale) + self.epsilon)

    def state(self) -> dict[str, np.ndarray]:
        """The optimiser's own arrays (not copies): filling them restores a saved state."""
        arrays = {"steps": self._steps}
        arrays |= {f"mean.{name}": array for name, array in self._mean.items()}
        return arrays | {f"square.{name}": array for name, array in self._square.items()}


class Muon:
    """Momentum with orthogonalised steps for matrices between hidden layers; AdamW for all others.

    All singular values of a step become about 1, so that directions with small gradients are learned, too.
    Its length is that of an AdamW step, with the same rate and decay.

    K. Jordan et al., https://kellerjordan.github.io/posts/muon (2024); J. Liu et al., "Muon is Scalable for
    LLM Training", arXiv:2502.16982, for the length.

    Parameters
    ----------
    parameters
        The parameters to train.
    hidden
        Names of the matrices, each of two axes.
    decay
        See `Adam`.
    momentum
        In [0, 1).
    """

    LENGTH = 0.2  # root mean square of a step, over the rate
    SLOPES = (3.4445, -4.7750, 2.0315)  # x to a x + b x³ + c x⁵ takes singular values toward 1
    ROUNDS = 5

    def __init__(
        self, parameters: Parameters, hidden: Collection[str], decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        self.parameters, self.decay, self.momentum = parameters, decay, momentum
        self._velocity = {name: np.zeros_like(parameters[name].value) for name in hidden}
        others = {name: p for name, p in parameters.items() if name not in hidden}
        self._adam = Adam(others, beta2=0.99, decay=decay)

    def step(self, rate: float) -> None:
        """Update every parameter from its gradient."""
        self._adam.step(rate)
        for name, velocity in self._velocity.items():
            parameter = self.parameters[name]
            velocity *= self.momentum
            velocity += parameter.grad
            ahead = parameter.grad + self.momentum * velocity
            # Queries, keys and values are three separate matrices, stacked in rows.
            each = np.split(ahead, 3) if name.endswith("qkv.weight") else [ahead]
            length = rate * self.LENGTH * max(each[0].shape) ** 0.5
            parameter.value *= 1 - rate * self.decay
            parameter.value -= length * np.concatenate([self._orthogonal(matrix) for matrix in each])

    def state(self) -> dict[str, np.ndarray]:
        """The optimiser's own arrays (not copies): filling them restores a saved state."""
        return self._adam.state() | {f"velocity.{name}": array for name, array in self._velocity.items()}

    def _orthogonal(self, matrix: np.ndarray) -> np.ndarray:
        """The matrix with singular values near 1, by Newton and Schulz's iteration."""
        a, b, c = self.SLOPES
        is_tall = matrix.shape[0] > matrix.shape[1]
        x = matrix.T if is_tall else matrix
        x = x / (np.linalg.norm(x) + 1e-7)
        for _ in range(self.ROUNDS):
            square = x @ x.T
            x = a * x + (b * square + c * square @ square) @ x
        return x.T if is_tall else x


@dataclass(frozen=True)
class OneCycle:
    """Learning rate that rises to a peak and falls to almost nothing, along half cosines.

    Smith and Topin, arXiv:1708.07120.
    """

    peak: float
    steps: int  # of the whole training
    rise: float = 0.3  # fraction of the steps before the peak
    start: float = 1 / 25  # first rate, as a fraction of the peak
    end: float = 1e-5  # last rate, as a fraction of the peak

    def rate(self, step: int) -> float:
        """Learning rate of a step, from 0 to ``steps`` - 1."""
        top = self.rise * (self.steps - 1)
        if step < top:
            low, progress = self.start, step / top
        else:
            low, progress = self.end, 1 - (step - top) / max(1, self.steps - 1 - top)
        return self.peak * (low + (1 - low) * (1 - cos(pi * progress)) / 2)
