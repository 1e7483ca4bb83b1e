"""How drafts are made: which sources, how many tokens, and what a benchmark replaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DRAFT_VOCAB = 32768


@dataclass(frozen=True)
class SpeculationSettings:
    """Drafts never change an answer, only its speed; by default there are none.

    ``mtp`` and ``lookup`` are the sources: the model's MTP block, and continuations of earlier occurrences of the
    last tokens in the sequence itself. Lengths are tokens.
    """

    mtp: bool = False
    lookup: bool = False
    n_max: int = 3  # of a draft of the MTP block
    n_min: int = 0  # shorter ones are not verified
    p_min: float = 0.0  # an MTP draft ends before a token that the block thinks less probable
    sampling: Literal["greedy", "probabilistic"] = "greedy"  # probabilistic: drawn with the noise of the answer
    lookup_min_match: int = 12  # last tokens that must have occurred before
    lookup_size: int = 48  # of a lookup draft
    lookup_min_hits: int = 1  # how often they must have occurred
    synth_rates: tuple[float, ...] = ()  # benchmarks: probability that draft 1, 2, ... and all before it are accepted
    draft_vocab: int = DRAFT_VOCAB  # ids that the MTP block chooses among, besides those in the context; 0: all
    adaptive: bool = True  # choose the length for speed, at most the limits above; False: always those

    @property
    def enabled(self) -> bool:
        return self.mtp or self.lookup
