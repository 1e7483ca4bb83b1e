"""What is known about the next tokens of one sequence, from each source of drafts."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import accumulate
from operator import mul
from typing import Literal

from pyjet.engine.acceptance import Acceptance, match_cell
from pyjet.engine.draft_blocks import RecentBlocks
from pyjet.engine.lookup import LookupIndex
from pyjet.engine.synthetic import Lots
from pyjet.native.structs import MAX_DRAFT

Source = Literal["mtp", "lookup"]
LEAST_CHANCE = 0.1  # drafts less likely to be right have no part in the choice between sources


class Guess:
    """Drafts in a row. ``cells``: of Acceptance, one for each; ``chances``: that so many are right, from its rates."""

    __slots__ = ("cells", "chances", "tokens")

    def __init__(self, tokens: list[int], cells: list[int], rates: Items[float]) -> None:
        self.tokens = tokens
        self.cells = cells
        self.chances = list(accumulate([rates[cell] for cell in cells], mul))

    def cut(self, n: int) -> None:
        if n < len(self.tokens):
            del self.tokens[n:], self.cells[n:], self.chances[n:]

    @property
    def worth(self) -> float:
        """Tokens that are expected of it, without drafts that are hardly worth a row."""
        return sum([chance for chance in self.chances if chance > LEAST_CHANCE])


NOTHING = Guess([], [], ())


class Guesses:
    """Of a sequence. ``mtp`` and ``lookup`` begin behind its newest token; ``source`` says whose are verified now."""

    def __init__(
        self, acceptance: Acceptance, lookup: LookupIndex | None, blocks: RecentBlocks | None, lots: Lots | None
    ) -> None:
        self.acceptance = acceptance
        self.index = lookup
        self.blocks = blocks
        self.lots = lots
        self.mtp = self.lookup = NOTHING
        self.source: Source = "mtp"

    def forget(self) -> None:
        """Nothing is known any more about tokens to come."""
        self.mtp = self.lookup = NOTHING

    def take_mtp(
        self, tokens: list[int], cells: list[int], probabilities: Items[float] = (), p_min: float = 0.0
    ) -> None:
        """What the MTP block guesses, up to the first draft that it thinks less probable than ``p_min``.

        ``cells``: of its probabilities, at least as many as there are tokens.
        """
        n = len(tokens)
        if p_min > 0.0:
            n = next((i for i, probability in enumerate(probabilities) if probability < p_min), n)
        if -1 in tokens:
            n = min(n, tokens.index(-1))
        self.mtp = Guess(tokens[:n], cells[:n], self.acceptance.rates)

    def look_up(self, n_tokens: int, most: int) -> None:
        """Find what followed the newest of ``n_tokens`` tokens before."""
        assert self.index is not None
        self.index.extend(n_tokens)
        if (found := self.index.find(n_tokens)) is None:
            self.lookup = NOTHING
            return
        tokens = found.tokens[:most]
        cells = [match_cell(found.n_match, position) for position in range(len(tokens))]
        self.lookup = Guess(tokens, cells, self.acceptance.rates)

    def choose_source(self, most: int) -> None:
        """The one that promises more, with drafts for ``most`` tokens at most."""
        if len(self.mtp.tokens) > most:
            self.mtp.cut(most)
        self.source = "lookup" if self.lookup.tokens and self.lookup.worth > self.mtp.worth else "mtp"

    @property
    def chosen(self) -> Guess:
        return self.mtp if self.source == "mtp" else self.lookup

    def learn(self, mtp: Guess, lookup: Guess, tokens: Items[int], index: int) -> None:
        """These tokens came after such guesses, the first one as token ``index`` of the answer.

        What was not verified is compared too: it costs nothing. By lot, what it would have been counts.
        """
        n_right = None if self.lots is None else self.lots.n_right(index, MAX_DRAFT)
        add = self.acceptance.add
        for guesses, has_positions in ((mtp, True), (lookup, False)):
            for position, (guess, cell, token) in enumerate(zip(guesses.tokens, guesses.cells, tokens)):
                is_right = guess == token if n_right is None else position < n_right
                add(cell, is_right)
                if has_positions:
                    add(position, is_right)
                if not is_right:
                    break
