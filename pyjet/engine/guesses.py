"""What is known about the next tokens of one sequence, from each source of drafts."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import accumulate
from operator import mul
from typing import Literal

from pyjet.engine.acceptance import Acceptance, ConfidenceCells, match_cell
from pyjet.engine.draft_blocks import RecentBlocks
from pyjet.engine.lookup import LookupIndex
from pyjet.engine.synthetic import Lots
from pyjet.native.structs import MAX_DRAFT

Source = Literal["mtp", "lookup", "grammar"]
FORCED = 0.99  # chance of a token that a grammar leaves no choice about: only how it is cut into tokens may differ
LEAST_CHANCE = 0.1  # drafts less likely to be right have no part in the choice between sources


class Guess:
    """Drafts in a row. ``cells``: of Acceptance, one for each, which say how likely they are by its ``rates``."""

    __slots__ = ("_cells", "_chances", "_rates", "tokens")

    def __init__(self, tokens: list[int], cells: list[int], rates: Items[float]) -> None:
        self.tokens = tokens
        self._cells = cells
        self._rates = rates
        self._chances: list[float] | None = None

    def cut(self, n: int) -> None:
        if n < len(self.tokens):
            del self.tokens[n:], self._cells[n:]
            if self._chances is not None:
                del self._chances[n:]

    @property
    def cells(self) -> list[int]:
        return self._cells

    @property
    def chances(self) -> list[float]:
        """That the first one, the first two, ... are right, by the rates of when this was first asked."""
        if self._chances is None:
            rates = self._rates
            self._chances = list(accumulate([rates[cell] for cell in self.cells], mul))
        return self._chances

    @property
    def worth(self) -> float:
        """Tokens that are expected of it, without drafts that are hardly worth a row."""
        return sum([chance for chance in self.chances if chance > LEAST_CHANCE])


class MtpGuess(Guess):
    """Of the MTP block, for the sequence that had place ``index`` in the step."""

    __slots__ = ("_index", "_of_step")

    def __init__(self, tokens: list[int], of_step: ConfidenceCells, index: int, rates: Items[float]) -> None:
        super().__init__(tokens, [], rates)
        self._of_step = of_step
        self._index = index

    @property
    def cells(self) -> list[int]:
        return self._of_step.of(self._index)[: len(self.tokens)]


class Forced(Guess):
    """What a grammar leaves no choice about."""

    __slots__ = ()

    def __init__(self, tokens: list[int]) -> None:
        super().__init__(tokens, [], ())
        self._chances = [FORCED ** (i + 1) for i in range(len(tokens))]


NOTHING = Guess([], [], ())


class Guesses:
    """Of a sequence; all begin behind its newest token. ``source`` says whose are verified now."""

    def __init__(
        self, acceptance: Acceptance, lookup: LookupIndex | None, blocks: RecentBlocks | None, lots: Lots | None
    ) -> None:
        self.acceptance = acceptance
        self.index = lookup
        self.blocks = blocks
        self.lots = lots
        self.mtp: Guess = NOTHING
        self.lookup: Guess = NOTHING
        self.forced: Guess = NOTHING
        self.source: Source = "mtp"

    def forget(self) -> None:
        """Nothing is known any more about tokens to come."""
        self.mtp = self.lookup = self.forced = NOTHING

    def force(self, tokens: list[int]) -> None:
        """What the answer's grammar leaves no choice about, which is better than any guess."""
        self.forced = Forced(tokens)

    def take_mtp(
        self, tokens: list[int], cells: ConfidenceCells, index: int, probabilities: Items[float] = (),
        p_min: float = 0.0,
    ) -> None:  # fmt: skip
        """What the MTP block guesses, up to the first draft that it thinks less probable than ``p_min``.

        ``cells``: of the drafts of all sequences of the step, in which this one had place ``index``.
        """
        if p_min > 0.0:
            tokens = tokens[: next((i for i, each in enumerate(probabilities) if each < p_min), len(tokens))]
        if -1 in tokens:
            tokens = tokens[: tokens.index(-1)]
        self.mtp = MtpGuess(tokens, cells, index, self.acceptance.rates)

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
        if self.forced.tokens:
            self.source = "grammar"
            return
        self.source = "lookup" if self.lookup.tokens and self.lookup.worth > self.mtp.worth else "mtp"

    @property
    def chosen(self) -> Guess:
        if self.source == "grammar":
            return self.forced
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
