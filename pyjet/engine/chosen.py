"""The tokens that rows of a step lead to, chosen by it or here from its logits, and how far drafts were right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyjet.engine.mask_rows import MaskRows
from pyjet.engine.request import TokenProbs
from pyjet.engine.sampling import SamplingError
from pyjet.engine.sequence import Sequence
from pyjet.native.step import StepResult


class Chosen(NamedTuple):
    """``guess``: what the MTP block took for the token when it made its drafts; ``is_draft``: a draft was right."""

    token: int
    probs: TokenProbs | None
    guess: int
    by_host: bool
    is_draft: bool = False


class ChosenTokens:
    """Reads the result of one step, its sequences in order."""

    def __init__(self, result: StepResult, masks: MaskRows) -> None:
        self._masks = masks
        self._argmax = result.argmax.tolist()
        self._sampled = result.sampled.tolist()
        self._logits = result.logits
        self._row = self._logits_row = 0  # of the next sequence
        self._first = self._first_logits = 0  # rows of this sequence from which tokens are chosen

    def next_sequence(self, sequence: Sequence, n_rows: int, n_chosen: int) -> None:
        """Go on to a sequence with ``n_rows`` rows; tokens are wanted from the last ``n_chosen`` of them."""
        self._row += n_rows
        self._first, self._first_logits = self._row - n_chosen, self._logits_row
        if not sequence.sampler.is_argmax:
            self._logits_row += n_chosen

    def first(self, sequence: Sequence) -> Iterator[Chosen]:
        """The first token behind what the sequence has read. Raises SamplingError."""
        yield self._choose(sequence, 0)

    def by_device(self, sequence: Sequence) -> list[int] | None:
        """Tokens of a decoding sequence as long as its drafts are right, when the device chose all; otherwise None."""
        of_rows = self._argmax if sequence.sampler.is_argmax else self._sampled
        drafts, row = sequence.verifying, self._first
        if (lots := sequence.lots) is not None:
            n_right = lots.n_right(len(sequence.generated), len(drafts))
            tokens = [*drafts[:n_right], of_rows[row + n_right]]
            return tokens if tokens[-1] >= 0 else None
        n_right = 0
        for draft in drafts:
            if draft != of_rows[row + n_right]:
                break
            n_right += 1
        return of_rows[row : row + n_right + 1] if of_rows[row + n_right] >= 0 else None

    def verified(self, sequence: Sequence) -> Iterator[Chosen]:
        """Tokens of a decoding sequence, as long as its drafts are right. Raises SamplingError.

        A row is in its context once the draft in it was right. Whoever stops in between leaves it with the rows of the
        tokens before the last one.
        """
        drafts, lots = sequence.verifying, sequence.lots
        n_by_lot = -1 if lots is None else lots.n_right(len(sequence.generated), len(drafts))
        sequence.n_drafted += len(drafts)
        for i, draft in enumerate([*drafts, -1]):
            sequence.advance_decoding(i)
            chosen = self._choose(sequence, i)
            is_right = chosen.token == draft if lots is None else i < n_by_lot
            if not is_right:
                yield chosen
                return
            sequence.n_right += 1
            yield chosen._replace(token=draft, is_draft=True)

    def _choose(self, sequence: Sequence, i: int) -> Chosen:
        """The token behind the i-th of these rows, all before it accepted."""
        if sequence.constraint is not None and (error := sequence.constraint.error):
            raise SamplingError(f"the grammar cannot be followed any further: {error}")
        row = self._first + i
        if sequence.sampler.is_argmax:
            token = self._argmax[row]
            return Chosen(token, None, token, by_host=False)
        if (token := self._sampled[row]) >= 0:
            return Chosen(token, None, token, by_host=False)
        logits = self._logits[self._first_logits + i]
        guess = self._argmax[row]
        if guess < 0 and sequence.n_draft:
            guess = int(np.argmax(logits))
        token, probs = sequence.sampler.sample(logits, self._masks.row(sequence, i))
        return Chosen(token, probs, guess, by_host=True)


def add_chosen(sequence: Sequence, chosen: Chosen, time: float) -> None:
    """The token is the sequence's newest one, chosen at ``time``."""
    sequence.add_token(chosen.token)
    sequence.token_times.append(time)
    sequence.sampler.accept(chosen.token)
    if sequence.constraint is not None:
        sequence.constraint.accept(chosen.token)
