"""How tokens are guessed ahead of the model. Answers do not depend on it, only their speed does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyjet.native.structs import MAX_DRAFT

DRAFT_BLOCK = 64  # PJ_DRAFT_BLOCK
MAX_DRAFT_ROWS = 32  # PJ_MAX_DRAFT_ROWS: rows of a step with the MTP block from which tokens are chosen


@dataclass(frozen=True)
class SpeculationSettings:
    """Sources of drafts and their limits, in tokens. The defaults of the numbers are llama-server's.

    ``mtp``: the model's own MTP block; ``lookup``: what followed the newest tokens when they occurred before. With
    neither nothing is drafted. ``adaptive``: numbers of drafts are chosen for speed, up to ``n_max`` of the MTP block
    and as many as a step can verify of a lookup; otherwise every step verifies ``n_max``, as far as a source has them.

    ``synth_rates`` are for benchmarks: draft i counts as right with probability ``synth_rates[i]``, whatever the model
    says, so the text is none. Each step then verifies as many drafts as there are rates, unless ``synth_adaptive``.
    """

    mtp: bool = False
    lookup: bool = False
    n_max: int = 3
    n_min: int = 0  # fewer are not verified
    p_min: float = 0.0  # a draft that the MTP block thinks less probable ends them
    sampling: Literal["greedy", "probabilistic"] = "greedy"
    lookup_min_match: int = 3  # tokens that must have occurred before
    lookup_size: int = 48  # drafts of a lookup at most
    lookup_min_hits: int = 1  # times that they must have occurred before
    synth_rates: tuple[float, ...] = ()  # unconditional, never increasing
    synth_adaptive: bool = False
    draft_vocab: int = 32768  # ids below are drafted besides recent ones of the context; 0: all
    adaptive: bool = True

    def __post_init__(self) -> None:
        for name in ("n_max", "lookup_min_match", "lookup_size", "lookup_min_hits"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.sampling not in ("greedy", "probabilistic"):
            raise ValueError(f"sampling of drafts must be greedy or probabilistic, not {self.sampling!r}")
        rates = self.synth_rates
        if any(not 0.0 <= rate <= 1.0 for rate in rates) or list(rates) != sorted(rates, reverse=True):
            raise ValueError(f"synth_rates must lie in 0..1 and never increase, not {rates}")

    @property
    def is_on(self) -> bool:
        return self.mtp or self.lookup

    @property
    def is_adaptive(self) -> bool:
        """Whether numbers of drafts are chosen for speed."""
        return self.synth_adaptive if self.synth_rates else self.adaptive

    @property
    def most(self) -> int:
        """Drafts of a fixed length, or of the MTP block at most."""
        return min(len(self.synth_rates) or self.n_max, MAX_DRAFT)

    @property
    def max_draft(self) -> int:
        """Drafts that the MTP block is asked for in a step at most."""
        return self.most if self.mtp else 0

    @property
    def first_blocks(self) -> int:
        """Blocks of token ids that are always drafted; 0: all."""
        return -(-max(0, self.draft_vocab) // DRAFT_BLOCK)


NO_SPECULATION = SpeculationSettings()
