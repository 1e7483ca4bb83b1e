"""Chooses the next token of one request: biases, the sampler chain, one draw, probabilities.

Where the native step can run the chain it does, and ``Sampler.sample`` is for rows that it did not settle.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence

import numpy as np

from pyjet.engine.candidates import Candidates, Float32Array, masked
from pyjet.engine.chain import active_samplers, is_greedy, temperature_range
from pyjet.engine.device_chain import device_sample, merged_biases
from pyjet.engine.request import RANDOM_SEED, Memory, SamplingParams, TokenProbs
from pyjet.engine.samplers.adaptive import AdaptiveP
from pyjet.engine.samplers.draw import draw
from pyjet.engine.samplers.dry import Dry
from pyjet.engine.samplers.infill import infill
from pyjet.engine.samplers.mirostat import Mirostat
from pyjet.engine.samplers.penalties import penalties
from pyjet.engine.samplers.tempering import dynamic_temperature
from pyjet.engine.samplers.truncation import min_p, top_k, top_n_sigma, top_p, typical
from pyjet.engine.samplers.xtc import xtc
from pyjet.native.samples import COUNT_DTYPE, Masks, Records
from pyjet.native.top_k import top_indices


class SamplingError(Exception):
    """No token can be chosen: the logits are not numbers, or every token is banned."""


class Sampler:
    """Sampling state of one request: how many tokens it has, and what the chain remembers of them.

    The n-th token depends only on the logits rows of the answer up to the n-th, the tokens before it, the parameters
    and the seed, because its noise belongs to seed and n (pyjet.engine.noise) and the chain's memory advances with
    accepted tokens only. That holds wherever the chain runs, except that of two tokens that are equally good up to
    rounding either may be chosen.

    ``seed``: 64 bits. ``index``: which token of the answer comes next, counted from 0. ``memory``: what the chain
    remembered before that; (): nothing.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        *,
        n_probs: int = 0,
        post_probs: bool = False,
        is_constrained: bool = False,
        index: int = 0,
        memory: Memory = (),
    ) -> None:
        self.params = params
        self.n_probs = n_probs
        self.post_probs = post_probs
        self.seed = secrets.randbits(64) if params.seed == RANDOM_SEED else params.seed & 0xFFFFFFFFFFFFFFFF
        self.index = index
        self.biases = merged_biases(params.logit_bias, n_vocab)
        self._chain = active_samplers(params)
        self._counts: Counter[int] | None = Counter() if "penalties" in self._chain else None  # of the window's tokens
        self._history: list[int] = []
        self._dry = Dry(params) if "dry" in self._chain else None
        self._feedback: Mirostat | AdaptiveP | None = None
        if "mirostat" in self._chain:
            self._feedback = Mirostat(params.mirostat, params.mirostat_tau, params.mirostat_eta, n_vocab)
        elif "adaptive_p" in self._chain:
            self._feedback = AdaptiveP(params.adaptive_target, params.adaptive_decay)
        if self._feedback is not None and memory:
            self._feedback.resume(memory)
        # The answer is always the raw logits' first maximum. With masks it is a greedy sample instead.
        is_plain = not n_probs and not len(self.biases) and not is_constrained
        self.is_argmax = is_plain and is_greedy(params)
        # The chain as the native step runs it; None: it needs the logits on the host.
        self.device_sample = None if n_probs or self.is_argmax else device_sample(params, self.biases, n_vocab)

    @property
    def penalises(self) -> bool:
        """Whether a token's chance depends on how often it occurred."""
        return self._counts is not None

    @property
    def memory(self) -> Memory:
        """What the chain remembers of the accepted tokens beyond the tokens themselves."""
        return () if self._feedback is None else self._feedback.memory

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
        if self._feedback is not None:
            self._feedback.accept(token)
        if self._dry is not None:
            self._dry.accept([token])
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
        if self._dry is not None:
            self._dry.accept(list(tokens))
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

    def sample(self, logits: Float32Array, mask: Masks | None = None) -> tuple[int, TokenProbs | None]:
        """The next token for float32[n_vocab] logits (not changed), and its probabilities if asked for.

        ``mask``: uint32[words], a bit for each token that may come. The same until it, or another one, is accepted.
        """
        candidates = self._candidates(logits, mask)
        for name in self._chain:
            self._apply(name, candidates)
        _check(candidates)
        if self.n_probs and self.post_probs:
            candidates.keep(candidates.best(len(candidates)), is_sorted=True)
        index, weights = draw(candidates, self.seed, self.index)
        token = candidates.token(index)
        if self._feedback is not None:
            self._feedback.note(token, float(weights[index] / weights.sum(dtype=np.float64)))
        if not self.n_probs:
            return token, None
        if self.post_probs:
            return token, surviving_probs(candidates, index, weights, self.n_probs)
        return token, raw_probs(logits, token, self.n_probs)

    def _candidates(self, logits: Float32Array, mask: Masks | None) -> Candidates:
        """All tokens, with the logits that the chain begins with: whatever bans or favours tokens does so here."""
        candidates = Candidates(logits)
        if len(self.biases):
            candidates.logits = logits.copy()
            candidates.logits[self.biases["token"]] += self.biases["bias"]
        _check(candidates)
        if mask is not None:
            candidates.logits = masked(candidates.logits, mask)
            _check(candidates, "grammar and logit_bias ban them all")
        return candidates

    def _apply(self, name: str, candidates: Candidates) -> None:
        p = self.params
        if name == "penalties" and self._counts is not None:
            penalties(candidates, self._counts, p.repeat_penalty, p.frequency_penalty, p.presence_penalty)
            _check(candidates)
        elif name == "dry" and self._dry is not None:
            self._dry.apply(candidates)
            _check(candidates)
        elif name == "top_n_sigma":
            top_n_sigma(candidates, p.top_n_sigma)
        elif name == "top_k":
            top_k(candidates, p.top_k)
        elif name == "typ_p":
            typical(candidates, p.typical_p, p.min_keep)
        elif name == "top_p":
            top_p(candidates, p.top_p, p.min_keep)
        elif name == "min_p":
            min_p(candidates, p.min_p, p.min_keep)
        elif name == "xtc":
            xtc(candidates, p.xtc_probability, p.xtc_threshold, p.min_keep, self.seed, self.index)
        elif name == "infill" and p.infill_tokens is not None:
            infill(candidates, p.infill_tokens)
        elif name == "temperature":
            dynamic_temperature(candidates, p.temperature, temperature_range(p), p.dynatemp_exponent)
        elif self._feedback is not None and name in ("mirostat", "adaptive_p"):
            self._feedback.apply(candidates)
        else:
            raise SamplingError(f"unknown sampler {name!r}")


def _check(candidates: Candidates, cause: str = "logit_bias or penalties ban them all") -> None:
    """Raises SamplingError when nothing is left to choose from."""
    if not np.isfinite(candidates.logits.max()):
        raise SamplingError(f"no token can be chosen: the model's logits are not finite, or {cause}")


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
