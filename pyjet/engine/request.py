"""What a client of the engine asks for and the events it gets back. Plain data, picklable, token ids only.

What comes with every token is a NamedTuple, made and pickled several times faster than a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from pyjet.grammar.description import Grammar

RANDOM_SEED = 0xFFFFFFFF
DEFAULT_SAMPLERS = ("penalties", "top_k", "typ_p", "top_p", "min_p", "temperature")

FinishReason = Literal["eos", "limit", "context", "cancelled", "none"]
FailureKind = Literal["unavailable", "server", "context"]


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen. Names, defaults and order of work are llama-server's.

    ``samplers`` is the chain in order; names it may hold: ``penalties``, ``top_k``, ``typ_p``, ``top_p``,
    ``min_p``, ``temperature``. Logit biases are added first, whatever the chain.
    """

    temperature: float = 0.8  # <= 0: greedy
    top_k: int = 40  # <= 0: off
    top_p: float = 0.95  # >= 1: off
    min_p: float = 0.05  # <= 0: off
    typical_p: float = 1.0  # >= 1: off
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64  # tokens of prompt and answer that penalties look at; 0: off, -1: all
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, added to its logit; -inf bans it)
    seed: int = RANDOM_SEED  # RANDOM_SEED: a new one for each request
    min_keep: int = 0  # top_p, min_p and typ_p leave at least so many candidates
    samplers: tuple[str, ...] = DEFAULT_SAMPLERS


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt to continue."""

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
    """One generated token. ``timings`` are those of the answer up to this token."""

    id: str
    token: int
    probs: TokenProbs | None = None
    timings: Timings = Timings()


@dataclass(frozen=True)
class FinishedEvent:
    """The last event of a request that ran.

    ``reason``: ``eos`` a stop id was generated; ``limit`` max_tokens or the time limit; ``context`` the slot is
    full; ``cancelled``; ``none`` the prompt was empty, so nothing was generated.
    """

    id: str
    reason: FinishReason
    slot: int  # -1 when it never had one
    timings: Timings
    n_context: int = 0  # tokens the slot holds at the end (prompt + generated - 1)


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


Event: TypeAlias = "StartedEvent | ProgressEvent | TokenEvent | FinishedEvent | FailedEvent"
