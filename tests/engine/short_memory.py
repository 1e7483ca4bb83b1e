"""A fake model that forgets, so that one answer holds many samples of the same distribution."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from pyjet.engine.client import EngineLimits
from pyjet.engine.noise import exponentials
from pyjet.native.step import StepBatch
from tests.engine.fake_mtp import FakeMtp, fake_logits
from tests.engine.fake_native import FakeNative

TEMPERATURE = 0.8  # of drafts, and of requests if they are to be right mostly
BLUR = 0.3  # drafts come from the model's logits and so many times as much noise


@cache
def logits_after(remembered: tuple[int, ...], n_vocab: int) -> npt.NDArray[np.float32]:
    return fake_logits([*remembered, 0], n_vocab)


@cache
def draft_weights(remembered: tuple[int, ...], n_vocab: int) -> npt.NDArray[np.float64]:
    logits = logits_after(remembered, n_vocab) + BLUR * fake_logits([*remembered, 1], n_vocab)
    return np.exp(logits.astype(np.float64) / TEMPERATURE)


class ShortMemory(FakeNative):
    """Logits depend on the tokens since the last position that ``span`` divides and on nothing else."""

    def __init__(self, limits: EngineLimits, span: int) -> None:
        super().__init__(limits)
        self.span = span
        self.mtp = BlurredMtp(self)

    def remembered(self, history: list[int]) -> tuple[int, ...]:
        return tuple(history[len(history) - len(history) % self.span :])

    def _logits(self, history: list[int]) -> np.ndarray:
        return logits_after(self.remembered(history), self.limits.n_vocab)


class BlurredMtp(FakeMtp):
    """It draws from nearly the model's distribution, with the noise that the token will be drawn with."""

    def __init__(self, native: ShortMemory) -> None:
        super().__init__(native.limits, native.contents[:, 1])
        self.native = native

    def _draft(self, batch: StepBatch, index: int, context: list[int], table: np.ndarray, n_right: int) -> None:
        seq = batch.seqs[index]
        sample = batch.samples[int(seq["draft_sample"])]
        tokens = np.arange(self.limits.n_vocab)
        for j in range(int(seq["n_draft"])):
            weights = draft_weights(self.native.remembered(context), self.limits.n_vocab)
            times = exponentials(int(sample["seed"]), int(sample["index"]) + n_right + 1 + j, tokens)
            token = int((times / weights).argmin())
            self.drafts[index, j], self.probs[index, j] = token, weights[token] / weights.sum()
            context = [*context, token]
