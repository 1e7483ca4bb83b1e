"""Chooses the next token of one request: biases, the sampler chain, one draw, probabilities.

Where the native step can run the chain it does, and ``Sampler.sample`` is for rows that it did not settle.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence

import numpy as np

from pyjet.engine import chain
from pyjet.engine.candidates import Candidates, Float32Array
from pyjet.engine.device_chain import active_samplers, device_sample, merged_biases
from pyjet.engine.request import RANDOM_SEED, SamplingParams, TokenProbs
from pyjet.native.samples import COUNT_DTYPE, Records
from pyjet.native.top_k import top_indices


class SamplingError(Exception):
    """No token can be chosen: the logits are not numbers, or every token is banned."""


class Sampler:
    """Sampling state of one request: how many tokens it has, and the token counts that penalties need.

    The n-th token depends only on the n-th logits row, the tokens before it, the parameters and the seed, because
    its noise belongs to seed and n (pyjet.engine.noise). That holds wherever the chain runs, except that of two
    tokens that are equally good up to rounding either may be chosen.

    ``seed``: 64 bits. ``index``: which token of the answer comes next, counted from 0.
    """

    def __init__(self, params: SamplingParams, n_vocab: int, *, n_probs: int = 0, post_probs: bool = False) -> None:
        self.params = params
        self.n_probs = n_probs
        self.post_probs = post_probs
        self.seed = secrets.randbits(64) if params.seed == RANDOM_SEED else params.seed & 0xFFFFFFFFFFFFFFFF
        self.index = 0
        self.biases = merged_biases(params.logit_bias, n_vocab)
        self._counts: Counter[int] | None = None  # of the tokens in the window
        if "penalties" in active_samplers(params):
            self._counts = Counter()
        self._history: list[int] = []
        # The answer is always the raw logits' first maximum.
        self.is_argmax = self._is_greedy() and not len(self.biases)
        # The chain as the native step runs it; None: it needs the logits on the host.
        self.device_sample = None if n_probs or self.is_argmax else device_sample(params, self.biases, n_vocab)

    @property
    def penalises(self) -> bool:
        """Whether a token's chance depends on how often it occurred."""
        return self._counts is not None

    def counts_after(self, drafts: Sequence[int]) -> Records | None:
        """COUNT_DTYPE by ascending token: what penalties look at once ``drafts`` are accepted; None without penalties.

        Nothing is accepted here.
        """
        if self._counts is None:
            return None
        counts: Counter[int] = self._counts
        if drafts:
            last_n = self.params.repeat_last_n
            window = self._history[-last_n:] if last_n > 0 else self._history
            counts = Counter([*window, *drafts][-last_n if last_n > 0 else 0 :])
        return np.array(sorted(counts.items()), COUNT_DTYPE)

    def accept(self, token: int) -> None:
        """A token became part of the sequence."""
        self.index += 1
        if self._counts is None:
            return
        self._history.append(token)
        self._counts[token] += 1
        last_n = self.params.repeat_last_n
        if 0 < last_n < len(self._history):
            self._forget(self._history[-1 - last_n])

    def accept_all(self, tokens: Sequence[int]) -> None:
        """Several tokens became part of the sequence."""
        if self._counts is None:
            self.index += len(tokens)
            return
        for token in tokens:
            self.accept(token)

    def accept_prompt(self, tokens: tuple[int, ...]) -> None:
        """All of a prompt's tokens at once, before any other."""
        if self._counts is None:
            return
        last_n = self.params.repeat_last_n
        self._history = list(tokens[-last_n:] if last_n > 0 else tokens)
        self._counts.update(self._history)

    def _forget(self, token: int) -> None:
        """A token left the window."""
        assert self._counts is not None
        self._counts[token] -= 1
        if self._counts[token] == 0:
            del self._counts[token]

    def sample(self, logits: Float32Array) -> tuple[int, TokenProbs | None]:
        """The next token for float32[n_vocab] logits (not changed), and its probabilities if asked for.

        The same until it, or another one, is accepted.
        """
        candidates = Candidates(logits)
        if len(self.biases):
            candidates.logits = logits.copy()
            candidates.logits[self.biases["token"]] += self.biases["bias"]
        if not np.isfinite(candidates.logits.max()):
            raise SamplingError("no token can be chosen: the model's logits are not finite or logit_bias bans them all")
        for name in self.params.samplers:
            self._apply(name, candidates)
        if self.n_probs and self.post_probs:
            candidates.keep(candidates.best(len(candidates)), is_sorted=True)
        index, weights = chain.draw(candidates, self.seed, self.index)
        token = candidates.token(index)
        if not self.n_probs:
            return token, None
        if self.post_probs:
            return token, surviving_probs(candidates, index, weights, self.n_probs)
        return token, raw_probs(logits, token, self.n_probs)

    def _apply(self, name: str, candidates: Candidates) -> None:
        p = self.params
        if name == "penalties":
            if self._counts is not None:
                chain.penalties(candidates, self._counts, p.repeat_penalty, p.frequency_penalty, p.presence_penalty)
        elif name == "top_k":
            chain.top_k(candidates, p.top_k)
        elif name == "typ_p":
            chain.typical(candidates, p.typical_p, p.min_keep)
        elif name == "top_p":
            chain.top_p(candidates, p.top_p, p.min_keep)
        elif name == "min_p":
            chain.min_p(candidates, p.min_p, p.min_keep)
        elif name == "temperature":
            chain.temperature(candidates, p.temperature)
        else:
            raise SamplingError(f"unknown sampler {name!r}")

    def _is_greedy(self) -> bool:
        """Whether the answer is always the first maximum of the biased logits, and nothing else is asked for."""
        p = self.params
        if self.n_probs or self._counts is not None:
            return False
        if "typ_p" in p.samplers and p.typical_p < 1.0:  # may drop the most likely token
            return False
        known = {"penalties", "top_k", "typ_p", "top_p", "min_p", "temperature"}
        return "temperature" in p.samplers and p.temperature <= 0.0 and known.issuperset(p.samplers)


def raw_probs(logits: Float32Array, token: int, n: int) -> TokenProbs:
    """Log-probabilities of the model itself, before biases and samplers: of ``token`` and of the ``n`` best."""
    best = top_indices(logits, n)
    shifted = logits - logits[best[0]]
    log_total = np.log(np.exp(shifted).sum(dtype=np.float64))
    return TokenProbs(float(shifted[token] - log_total), tuple((int(i), float(shifted[i] - log_total)) for i in best))


def surviving_probs(candidates: Candidates, index: int, weights: Float32Array, n: int) -> TokenProbs:
    """Probabilities after the chain: of the candidate at ``index`` and of the ``n`` best; impossible ones left out."""
    probs = weights / weights.sum(dtype=np.float64)
    n_possible = int(np.count_nonzero(probs[:n]))
    return TokenProbs(float(probs[index]), tuple((candidates.token(i), float(probs[i])) for i in range(n_possible)))
