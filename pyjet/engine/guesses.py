"""What is known about the next tokens of one sequence, from each source of drafts."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Literal

from pyjet.engine.acceptance import Acceptance, confidence_cell, match_cell
from pyjet.engine.draft_blocks import RecentBlocks
from pyjet.engine.lookup import LookupIndex
from pyjet.engine.synthetic import Lots

Source = Literal["mtp", "lookup"]


@dataclass
class Guess:
    """Drafts in a row. ``cells``: of Acceptance, one for each; ``chances``: that so many are right."""

    tokens: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)

    def cut(self, n: int) -> None:
        del self.tokens[n:], self.cells[n:], self.chances[n:]


class Guesses:
    """Of a sequence. ``mtp`` and ``lookup`` begin behind its newest token; ``source`` says whose are verified now."""

    def __init__(
        self, acceptance: Acceptance, lookup: LookupIndex | None, blocks: RecentBlocks | None, lots: Lots | None
    ) -> None:
        self.acceptance = acceptance
        self.index = lookup
        self.blocks = blocks
        self.lots = lots
        self.mtp = Guess()
        self.lookup = Guess()
        self.source: Source = "mtp"

    def forget(self) -> None:
        """Nothing is known any more about tokens to come."""
        self.mtp, self.lookup = Guess(), Guess()

    def take_mtp(self, tokens: Items[int], probabilities: Items[float], p_min: float) -> None:
        """What the MTP block guesses, up to the first draft that it thinks less probable than ``p_min``."""
        n = next((i for i, (t, p) in enumerate(zip(tokens, probabilities)) if t < 0 or p < p_min), len(tokens))
        cells = [confidence_cell(p, i) for i, p in enumerate(probabilities[:n])]
        self.mtp = Guess(list(tokens[:n]), cells, self.acceptance.chance(cells))

    def look_up(self, n_tokens: int, most: int) -> None:
        """Find what followed the newest of ``n_tokens`` tokens before."""
        self.lookup = Guess()
        if self.index is None:
            return
        self.index.extend(n_tokens)
        if (found := self.index.find(n_tokens)) is not None:
            cells = [match_cell(found.n_match, i) for i in range(min(most, len(found.tokens)))]
            self.lookup = Guess(found.tokens[: len(cells)], cells, self.acceptance.chance(cells))

    @property
    def chosen(self) -> Guess:
        return self.mtp if self.source == "mtp" else self.lookup

    def learn_lots(self, n_verified: int, n_right: int) -> None:
        """What lots said of the drafts that were verified."""
        for position, cell in enumerate(self.chosen.cells[:n_verified]):
            self._add(self.source, cell, position, position < n_right)
            if position >= n_right:
                break

    def learn(self, tokens: Items[int]) -> None:
        """These tokens came. What was not verified is compared too: it costs nothing."""
        for source, guess in (("mtp", self.mtp), ("lookup", self.lookup)):
            for position, (guessed, cell, token) in enumerate(zip(guess.tokens, guess.cells, tokens)):
                self._add(source, cell, position, guessed == token)
                if guessed != token:
                    break

    def _add(self, source: str, cell: int, position: int, is_right: bool) -> None:
        self.acceptance.add(cell, is_right)
        if source == "mtp":
            self.acceptance.add(position, is_right)
