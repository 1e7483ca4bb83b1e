"""DRY, "don't repeat yourself": tokens that would go on with a repetition are penalised, the longer the harder.

The idea is p-e-w's (text-generation-webui, pull request 5677, 2024). A token that would prolong a repetition of n
tokens loses ``multiplier * base ** (n - allowed_length)``; sequence breakers end the text that can be repeated.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pyjet.engine.candidates import Candidates
from pyjet.engine.request import SamplingParams
from pyjet.engine.samplers.penalties import places, replace_logits
from pyjet.engine.samplers.sequence_breaks import SequenceBreaks
from pyjet.engine.samplers.suffix_matches import SuffixMatches

_LARGEST_LOG = 88.7228391  # ln of the largest float32
_SMALLEST_BASE = 1.000001  # powers of smaller ones stay small


class Dry:
    """Of one request. It looks at the last ``dry_penalty_last_n`` tokens of prompt and answer."""

    def __init__(self, params: SamplingParams) -> None:
        self._multiplier, self._base = params.dry_multiplier, params.dry_base
        self._allowed = params.dry_allowed_length
        self._matches = SuffixMatches(params.dry_penalty_last_n)
        self._breaks = SequenceBreaks(params.dry_breakers)
        is_bounded = self._base > _SMALLEST_BASE
        self._max_exponent = int(_LARGEST_LOG / math.log(self._base)) if is_bounded else 0  # 0: none

    def accept(self, tokens: list[int]) -> None:
        """These became part of the sequence."""
        self._matches.add(tokens)
        self._breaks.add(self._matches.tokens, len(tokens))

    def apply(self, candidates: Candidates) -> None:
        """Subtract the penalties. Tokens that are breakers themselves have none."""
        tokens, lengths = self._prolonged()
        if len(tokens) == 0:
            return
        exponents = lengths - self._allowed
        if self._max_exponent > 0:
            exponents = np.minimum(exponents, self._max_exponent)
        with np.errstate(over="ignore"):
            penalty = (self._multiplier * np.power(self._base, exponents.astype(np.float64))).astype(np.float32)
        at, penalty = places(candidates, tokens, penalty)
        if len(at):
            with np.errstate(over="ignore", invalid="ignore"):  # noticed at the end of the chain
                replace_logits(candidates, at, candidates.logits[at] - penalty)

    def _prolonged(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Tokens that would prolong a repetition, and how long the longest one is without them: intp[n] each."""
        window = self._matches.tokens
        lengths = np.minimum(self._matches.lengths[:-1], self._breaks.n_behind(len(window)))
        at = np.flatnonzero(lengths >= self._allowed)
        tokens, groups = np.unique(window[at + 1], return_inverse=True)
        longest = np.zeros(len(tokens), np.intp)
        np.maximum.at(longest, groups, lengths[at])
        penalised = [token not in self._breaks.tokens for token in tokens.tolist()]
        return tokens[penalised].astype(np.intp), longest[penalised]
