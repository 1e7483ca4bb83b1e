"""KL divergence of rows of logits, and its statistics."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass

import numpy as np
import numpy.typing as npt

from cli.llama_cpp import Logits

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Figures:
    """Statistics of KL(base || other) over rows, in nats, and the share of rows with the same best token."""

    mean: float
    median: float
    p99: float
    max: float
    top1: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)

    def as_array(self) -> Floats:
        return np.array(astuple(self))


STATISTICS = tuple(Figures.__dataclass_fields__)


@dataclass(frozen=True)
class Sample:
    """A comparison, window by window. kld: nats [windows, rows]; same: equal best token, bool, same shape."""

    kld: Floats
    same: npt.NDArray[np.bool_]

    def figures(self, chosen: npt.NDArray[np.intp] | None = None) -> Figures:
        """Statistics over all rows, or over those of the chosen windows, which may repeat."""
        kld, same = (self.kld, self.same) if chosen is None else (self.kld[chosen], self.same[chosen])
        median, p99 = np.percentile(kld, (50, 99))
        return Figures(float(kld.mean()), float(median), float(p99), float(kld.max()), float(same.mean()))


def stack(windows: list[Sample]) -> Sample:
    """One sample of single windows' samples."""
    return Sample(np.concatenate([w.kld for w in windows]), np.concatenate([w.same for w in windows]))


def pool(samples: list[Sample]) -> Sample:
    """All rows of several comparisons on the same windows, window by window."""
    return Sample(np.concatenate([s.kld for s in samples], axis=1), np.concatenate([s.same for s in samples], axis=1))


def log_softmax(logits: Logits) -> Floats:
    """Natural logarithm of the probabilities, in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def compare(base: Floats, other: Floats) -> Sample:
    """One window's comparison of two log-probabilities [rows, n_vocab]."""
    kld = np.einsum("rv,rv->r", np.exp(base), base - other)
    return Sample(kld[None], (base.argmax(-1) == other.argmax(-1))[None])
