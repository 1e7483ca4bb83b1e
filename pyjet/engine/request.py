"""What a client of the engine asks for and the events it gets back. Plain data, picklable, token ids only.

What comes with every token is a NamedTuple, made and pickled several times faster than a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pyjet.grammar.description import Grammar

RANDOM_SEED = 0xFFFFFFFF
DEFAULT_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")

FinishReason = Literal["eos", "limit", "context", "cancelled", "none", "read"]
# Which rows after the final norm make the embedding of a prompt: all, their mean, the first or the last one.
Pooling = Literal["none", "mean", "cls", "last"]
# What a sampler with feedback remembers of the answer: mu of Mirostat, the two sums of adaptive_p; () of the others.
Memory: TypeAlias = "tuple[float, ...]"
FailureKind = Literal["unavailable", "server", "context"]


@dataclass(frozen=True)
class Breakers:
    """What interrupts the repetitions that DRY penalises.

    ``tokens``: tokens that do so by themselves; ``sequences``: tokens that do so one after another, two or more.
    """

    tokens: frozenset[int] = frozenset()
    sequences: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class InfillTokens:
    """What the sampler ``infill`` knows of a vocabulary.

    A token's text begins with that of token t where ``rank[t] <= rank[token] <= last[t]`` (int32[n_vocab] each); of
    tokens without a text ``last`` is -1. ``is_end``: bool[n_vocab], tokens that end an answer. ``end``: the usual one.
    """

    rank: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    is_end: npt.NDArray[np.bool_]
    end: int


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen. Names, defaults and order of work are llama-server's.

    ``samplers`` is the chain in order: the names of DEFAULT_SAMPLERS, ``infill``, which needs ``infill_tokens`` to do
    anything, and ``adaptive_p``, which comes last wherever it is named. Logit biases are added first, whatever the
    chain. ``mirostat`` takes the place of all samplers but a fixed temperature.
    """

    temperature: float = 0.8  # <= 0: greedy
    dynatemp_range: float = 0.0  # the temperature goes up and down by so much, with the entropy; <= 0: off
    dynatemp_exponent: float = 1.0
    top_k: int = 40  # <= 0: off
    top_p: float = 0.95  # >= 1: off
    min_p: float = 0.05  # <= 0: off
    typical_p: float = 1.0  # >= 1: off
    top_n_sigma: float = -1.0  # standard deviations of logits; <= 0: off
    xtc_probability: float = 0.0  # <= 0: off
    xtc_threshold: float = 0.1  # > 0.5: off
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64  # tokens of prompt and answer that penalties look at; 0: off, -1: all
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0  # 0: off
    dry_base: float = 1.75  # < 1: off
    dry_allowed_length: int = 2  # repetitions up to this length cost nothing
    dry_penalty_last_n: int = 64  # tokens of prompt and answer that DRY looks at; <= 0: off
    dry_breakers: Breakers = Breakers()
    mirostat: int = 0  # version 1 or 2; 0: off
    mirostat_tau: float = 5.0  # wanted surprise, in bits
    mirostat_eta: float = 0.1  # learning rate
    adaptive_target: float = -1.0  # wanted probability; < 0: off
    adaptive_decay: float = 0.9  # of the average of probabilities, 0 to 0.99
    infill_tokens: InfillTokens | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, added to its logit; -inf bans it)
    seed: int = RANDOM_SEED  # RANDOM_SEED: a new one for each request
    min_keep: int = 0  # top_p, min_p, typ_p and xtc leave at least so many candidates
    samplers: tuple[str, ...] = DEFAULT_SAMPLERS


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt to continue, or with ``pooling`` one whose embedding is wanted instead."""

    id: str  # unique among requests in flight
    prompt: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int = -1  # -1: until an end token or a full context; 0 counts as 1, like llama-server
    stop_ids: frozenset[int] = frozenset()  # a token of these ends the answer (reason "eos"); it is still reported
    n_probs: int = 0  # how many best candidates each TokenEvent lists; 0: TokenEvent.probs is None
    post_sampling_probs: bool = False  # probabilities after the sampler chain instead of raw log-probabilities
    id_slot: int = -1  # wanted slot, taken modulo the number of slots; -1: any
    priority: int = 0  # higher runs first; first come first served among equals
    return_progress: bool = False  # send ProgressEvent while the prompt is read
    time_limit_ms: int = -1  # generation time after the first token; over it: reason "limit"; -1: none
    cache_prompt: bool = True  # False: read the whole prompt, whatever is known of it
    boundaries: tuple[int, ...] = ()  # ascending offsets in the prompt at which messages start
    grammar: Grammar | None = None  # that the answer must follow
    n_before: int = 0  # tokens of the answer that earlier requests brought: the noise of its draws goes on behind them
    memory: Memory = ()  # what its sampler goes on from, as the last TokenEvent of an earlier request told it
    pooling: Pooling | None = None  # EmbeddingEvents instead of tokens; then nothing is kept of the prompt

    @property
    def reuses_prompt(self) -> bool:
        """Whether what is known of its prompt may take the place of rows; an embedding of all rows needs them all."""
        return self.cache_prompt and self.pooling in (None, "last")


class Timings(NamedTuple):
    """Times of one request, in llama-server's sense.

    The prompt phase lasts until the first token is chosen, so ``predicted_ms`` covers ``predicted_n - 1`` steps
    (0.001 when there was only one token). ``queue_ms`` is the wait for a slot and is part of neither, so the first
    token comes ``queue_ms + prompt_ms`` after the request.
    """

    cache_n: int = 0  # prompt tokens reused
    prompt_n: int = 0  # prompt tokens processed
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    queue_ms: float = 0.0
    swap_ms: float = 0.0  # its pages and state came back from host memory, others made room
    n_preemptions: int = 0  # times that it lost its pages to a more urgent request
    draft_n: int = 0  # drafts that were verified
    draft_n_accepted: int = 0  # those of them that were right


@dataclass(frozen=True)
class TokenProbs:
    """Probabilities for one generated token.

    ``logprob``: of the chosen token; ``top``: (token id, log-probability), best first. With
    ``post_sampling_probs`` both hold probabilities (0..1) and ``top`` only the candidates that survived.
    A log-probability may be ``-inf``.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class StartedEvent:
    """The request has its slot; reading the prompt begins."""

    id: str
    slot: int
    id_task: int = 0  # number of the request in this engine, counted from 0


@dataclass(frozen=True)
class ProgressEvent:
    """``processed`` of ``total`` prompt tokens are in the context; ``cached`` of them were reused."""

    id: str
    total: int
    cached: int
    processed: int
    time_ms: float


class TokenEvent(NamedTuple):
    """One generated token. ``timings`` and the sampler's ``memory`` are those of the answer up to this token."""

    id: str
    token: int
    probs: TokenProbs | None = None
    timings: Timings = Timings()
    memory: Memory = ()


@dataclass(frozen=True, eq=False)
class EmbeddingEvent:
    """Rows of an embedding, float32[n, width], the next ones in order; one row in all, except for pooling "none"."""

    id: str
    rows: npt.NDArray[np.float32]


class Reuse(NamedTuple):
    """What a prompt was continued from.

    ``n_tokens``: those of the recurrent state that it went on from, 0 without one; ``kind``: why that state had been
    kept, "pages" for models that have no state and go on anywhere; ``n_known``: tokens at the prompt's start whose full
    pages were known, whether or not a state was kept there.
    """

    n_tokens: int = 0
    kind: str = ""
    n_known: int = 0


@dataclass(frozen=True)
class FinishedEvent:
    """The last event of a request that ran.

    ``reason``: ``eos`` a stop id was generated; ``limit`` max_tokens or the time limit; ``context`` the slot is
    full; ``cancelled``; ``none`` the prompt was empty, so nothing was generated; ``read`` its embedding is complete.
    """

    id: str
    reason: FinishReason
    slot: int  # -1 when it never had one
    timings: Timings
    n_context: int = 0  # tokens the slot holds at the end (prompt + generated - 1)
    reuse: Reuse | None = None  # None: it never started, or did not want what is known (``cache_prompt``)


@dataclass(frozen=True)
class FailedEvent:
    """The last event of a request that could not be answered.

    ``kind``: ``unavailable`` the engine is loading, stopped or died; ``context`` the prompt can never fit
    (``n_prompt`` tokens into ``n_ctx``); ``server`` anything else.
    """

    id: str
    message: str
    kind: FailureKind
    n_prompt: int = 0
    n_ctx: int = 0


Event: TypeAlias = "StartedEvent | ProgressEvent | TokenEvent | EmbeddingEvent | FinishedEvent | FailedEvent"
