"""A set of candidate tokens that the sampler chain narrows down, without sorting a vocabulary when it can be helped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyjet.native.top_k import top_indices

_MANY = 4096

Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32] | npt.NDArray[np.intp]


def softmax(logits: Float32Array) -> Float32Array:
    """Probabilities in float32; the largest logit must be finite."""
    weights = np.exp(logits - logits.max())
    probs: Float32Array = weights / np.float32(weights.sum(dtype=np.float64))
    return probs


def masked(logits: Float32Array, mask: npt.NDArray[np.uint32]) -> Float32Array:
    """The float32[n_vocab] logits with -inf for tokens whose bit (t % 32 of word t // 32) is not in the mask."""
    allowed = np.unpackbits(mask.view(np.uint8), count=len(logits), bitorder="little")
    result: Float32Array = np.where(allowed, logits, np.float32(-np.inf))
    return result


def surprises(logits: Float32Array) -> tuple[Float32Array, Float32Array, float]:
    """Probabilities, their negative logarithms (float32[n] each) and the entropy, in nats."""
    shifted = logits - logits.max()
    probs: Float32Array = np.exp(shifted)
    total = float(probs.sum(dtype=np.float64))
    probs /= np.float32(total)
    surprise: Float32Array = np.float32(np.log(total)) - shifted
    possible = probs > 0
    if possible.all():
        return probs, surprise, float(np.dot(probs, surprise))
    return probs, surprise, float(np.dot(probs[possible], surprise[possible]))


class Candidates:
    """Logits of the tokens still in the game.

    ``ids``: token ids, or None while all tokens are there in id order. ``is_sorted``: best first.
    ``logits`` is replaced or owned, never the caller's array after the first change.
    """

    def __init__(self, logits: Float32Array) -> None:
        self.logits = logits
        self.ids: IntArray | None = None
        self.is_sorted = False

    def __len__(self) -> int:
        return int(self.logits.shape[0])

    def keep(self, indices: IntArray, *, is_sorted: bool) -> None:
        """Narrow down to ``indices``, in that order."""
        self.ids = indices if self.ids is None else self.ids[indices]
        self.logits = self.logits[indices]
        self.is_sorted = is_sorted

    def cut(self, n: int) -> None:
        """Keep the first ``n`` of sorted candidates."""
        if self.ids is None:
            self.ids = np.arange(len(self))
        self.ids, self.logits = self.ids[:n], self.logits[:n]

    def best(self, k: int) -> IntArray:
        """Indices of the ``k`` best candidates, best first, lowest index first among equals."""
        if self.is_sorted:
            return np.arange(min(k, len(self)))
        if len(self) > _MANY and k < len(self):
            is_possible = self.logits != -np.inf
            n_possible = int(np.count_nonzero(is_possible))
            if n_possible < k:  # a selection among equals takes long
                possible = np.flatnonzero(is_possible)
                order = possible[top_indices(self.logits[possible], n_possible)]
                return np.concatenate([order, np.flatnonzero(~is_possible)[: k - n_possible]])
        return top_indices(self.logits, k)

    def token(self, index: int) -> int:
        return index if self.ids is None else int(self.ids[index])
