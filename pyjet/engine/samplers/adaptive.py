"""adaptive_p: tokens near a target probability are preferred, whether more or less likely ones would be left.

MrJackSpade and ddh0's sampler (llama.cpp, pull request 17927): the target moves against the average of what was chosen.
"""

from __future__ import annotations

import numpy as np

from pyjet.engine.candidates import Candidates, Float32Array, IntArray, softmax

_WIDTH = np.float32(0.3)  # of the preference, as a probability
_PEAK = np.float32(5.0)  # logit at the target
_SHARPNESS = np.float32(10.0)


class AdaptiveP:
    """Its state is a decaying average of the original probabilities of chosen tokens, at first ``target``."""

    def __init__(self, target: float, decay: float) -> None:
        self._target = min(target, 1.0)
        self._decay = min(max(decay, 0.0), 0.99)
        self._sum = target / (1.0 - self._decay)
        self._weight = 1.0 / (1.0 - self._decay)
        self._ids: IntArray | None = None  # of the candidates that were reshaped last
        self._probs: Float32Array = np.empty(0, np.float32)
        self._pending: tuple[int, float] | None = None  # token that was drawn, its original probability

    @property
    def memory(self) -> tuple[float, ...]:
        """The state after the accepted tokens, for ``resume``."""
        return self._sum, self._weight

    def resume(self, memory: tuple[float, ...]) -> None:
        """Go on where another one was."""
        self._sum, self._weight = memory

    def apply(self, candidates: Candidates) -> None:
        """New logits, by the distance of each probability from the target: quadratic near it, linear far away."""
        self._ids, self._probs = candidates.ids, softmax(candidates.logits)
        target = np.float32(min(max(2.0 * self._target - self._sum / self._weight, 0.0), 1.0))
        distance = np.abs(self._probs - target) / _WIDTH
        logits = _PEAK - _SHARPNESS * distance * distance / (1 + distance)
        candidates.logits = np.where(candidates.logits == -np.inf, candidates.logits, logits)
        candidates.is_sorted = False

    def note(self, token: int, probability: float) -> None:
        """This one was drawn; nothing changes before it is accepted. Its new ``probability`` does not matter."""
        at = token if self._ids is None else int(np.flatnonzero(self._ids == token)[0])
        self._pending = (token, float(self._probs[at]))

    def accept(self, token: int) -> None:
        """A token became part of the answer."""
        if self._pending is not None and self._pending[0] == token:
            self._sum = self._pending[1] + self._decay * self._sum
            self._weight = 1.0 + self._decay * self._weight
        self._pending = None
