"""How many prompt rows a step may carry beside decoding rows, so that those keep their share of the time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyjet.engine.step_costs import SIZES, StepCosts

MAX_PAUSE = 0.15  # seconds between two tokens of who decodes, because of a prompt
SLOW_PAUSE = 1.5  # the same in steps that only decode, for models that need longer than MAX_PAUSE for little more
STRETCH = 1.5  # a single step may take so many times its budget, when others have saved the time
MAX_DEBT = 4.0  # budgets; what a step took beyond that (a hiccup of the machine) is not held against prompts
MAX_BURST = 0.5  # seconds of debt at most for short prompts
MIN_ROWS = 8  # smaller chunks are not worth a step of their own
WORTHWHILE = 1.001  # times as fast, before sizes that differ more are preferred
MUCH_FASTER = 1.03  # so many times as fast, before a prompt is cut into more steps than it needs
ABOUT_AS_FAST = 1.05  # times as long
MAX_WAIT = 16  # steps without a prompt row before the budget is ignored for MIN_ROWS of them


class Chunk(NamedTuple):
    """Prompt rows that a step could carry, and the price of that step."""

    seconds: float
    rows: int


class TimedStep(NamedTuple):
    """``n_decoding`` of its rows decoded; ``are_short``: the prompts of the others were."""

    n_rows: int
    seconds: float
    n_decoding: int
    are_short: bool


class StepBudget:
    """Steps with prompt rows take at most ``factor`` times as long, on average, as steps that only decode.

    The average matters, not each step: row counts just below a jump of the price read a prompt fastest, so steps of
    two sizes may take turns. What a step leaves of its budget is credit for the next ones, what it takes beyond is
    debt; both are bounded, so the share holds over any half second too. ``chunk_rows`` before a step, ``observe``
    after it.

    Short prompts are what agents send most: the result of a tool. They are read at once, in steps as long as a pause
    may be, and paid for afterwards; then the share holds over some seconds. A debt ends when nobody decodes any more.
    """

    def __init__(self, max_rows: int, factor: float, costs: StepCosts) -> None:
        self.max_rows = max_rows
        self.costs = costs
        self._factor = max(1.0, factor)
        self._credit = 0.0  # seconds; debt when negative
        self._n_decoding = 0  # of the step that is being planned or computed
        self._are_short = False  # the prompts of that step
        self._n_waited = 0  # steps since prompts that wanted rows got any
        self._timed: list[TimedStep] = []  # from which nothing was learned yet

    def chunk_rows(self, n_decoding: int, wanted: int, *, are_short: bool = False) -> int:
        """Prompt rows of the next step, of ``wanted``. When nobody decodes, those that end soonest.

        ``are_short``: so few rows are left to read that they should not wait for each other.
        """
        self.think()
        if not n_decoding:  # nobody is owed anything
            self._credit = max(0.0, self._credit)
        self._n_decoding = n_decoding
        self._are_short = are_short
        room = min(wanted, self.max_rows - n_decoding)
        if room <= 0:
            return 0
        if n_decoding and are_short and self._credit > -MAX_BURST:
            rows = self._at_once(n_decoding, room)
        else:
            rows = self._affordable(n_decoding, room) if n_decoding else self._soonest(room)
        if rows == 0 and self._n_waited >= MAX_WAIT:
            rows = min(MIN_ROWS, room)
        self._n_waited = 0 if rows else self._n_waited + 1
        return rows

    def only_decodes(self, n_decoding: int) -> None:
        """The next step has no prompt to read, so what former steps took need not be known yet."""
        self._n_decoding = n_decoding
        self._are_short = False

    def observe(self, n_rows: int, seconds: float) -> None:
        """The planned step had ``n_rows`` rows in all and took so long. What it teaches can wait for ``think``."""
        self._timed.append(TimedStep(n_rows, seconds, self._n_decoding, self._are_short))

    def think(self) -> None:
        """Learn what steps take; whenever there is time, and before rows of a prompt are chosen."""
        timed, self._timed = self._timed, []
        for step in timed:
            self.costs.observe(step.n_rows, step.seconds)
            if step.n_decoding:
                self._pay(step)

    def _pay(self, step: TimedStep) -> None:
        budget = self._factor * self.costs.decode_seconds(step.n_decoding)
        # What short prompts took is paid back in full, whatever comes in between.
        most_debt = MAX_BURST + 2 * MAX_PAUSE if step.are_short else max(MAX_DEBT * budget, -self._credit)
        credit = self._credit + budget - step.seconds
        self._credit = min(max(credit, -most_debt), (STRETCH - 1.0) * budget)

    def _seconds(self) -> float:
        """What a step may take on average."""
        return self._factor * self.costs.decode_seconds(self._n_decoding)

    def _soonest(self, room: int) -> int:
        """Rows of the first of equal steps that read ``room`` rows soonest: all at once, or where a stair ends.

        Of steps that are about as fast the shortest: who comes meanwhile waits for the end of one.
        """

        def total(rows: int) -> float:
            n_full, rest = divmod(room, rows)
            return n_full * self.costs.likely(rows) + (self.costs.likely(rest) if rest else 0.0)

        totals = {size: total(size) for size in SIZES if MIN_ROWS <= size < room}
        soonest = min(totals.values(), default=0.0)
        if not totals or soonest * MUCH_FASTER >= total(room):
            return room
        about_as_fast = [size for size, seconds in totals.items() if seconds <= soonest * ABOUT_AS_FAST]
        return min(about_as_fast, key=lambda size: (self.costs.likely(size), -size))

    def _at_once(self, n_decoding: int, room: int) -> int:
        """Rows of the longest step that is no pause; few more than that beside a model that is slow anyway."""
        longest = max(MAX_PAUSE, self._seconds())
        sizes = [room, *(size - n_decoding for size in reversed(SIZES) if size - n_decoding < room)]
        fitting = (rows for rows in sizes if rows > 0 and self.costs.seconds(n_decoding + rows) <= longest)
        return next(fitting, min(MIN_ROWS, room))

    def _affordable(self, n_decoding: int, room: int) -> int:
        """Rows of the chunk that reads fastest within the budget and what others saved."""
        budget = self._seconds()
        if budget == 0.0:  # nothing is known yet
            return min(MIN_ROWS, room)
        allowed = budget + self._credit
        chunks = self._chunks(n_decoding, room, budget)
        for chunk in reversed(best_mix(chunks, budget)):
            if chunk.seconds <= allowed:
                return chunk.rows
        return max((c for c in chunks if c.seconds <= allowed), key=speed, default=chunks[0]).rows

    def _chunks(self, n_decoding: int, room: int, budget: float) -> list[Chunk]:
        """None, the smallest, all that is wanted, and those that fill a step to the edge of a stair."""
        smallest = min(MIN_ROWS, room)
        longest = min(STRETCH * budget, max(MAX_PAUSE, SLOW_PAUSE * budget / self._factor))
        rows = [size - n_decoding for size in SIZES if smallest < size - n_decoding < room]
        chunks = [Chunk(budget / self._factor, 0), self._chunk(n_decoding, smallest)]
        for n in [*rows, room]:
            chunk = self._chunk(n_decoding, n)
            if chunk.seconds <= longest:
                chunks.append(chunk)
        return chunks

    def _chunk(self, n_decoding: int, rows: int) -> Chunk:
        return Chunk(self.costs.seconds(n_decoding + rows), rows)


def speed(chunk: Chunk) -> float:
    """Prompt rows per second."""
    return chunk.rows / chunk.seconds


def best_mix(chunks: Iterable[Chunk], budget: float) -> tuple[Chunk, Chunk]:
    """The chunk that reads most rows per second while steps take ``budget`` on average, or the two in turns that do.

    The first one is within the budget, the second one is the same or takes longer. Where it hardly matters, sizes are
    alike, so that tokens come evenly. Among ``chunks`` is one of no rows within the budget.
    """
    fits = sorted((c for c in chunks if c.seconds <= budget), reverse=True)
    longer = sorted(c for c in chunks if c.seconds > budget)
    best = max(fits, key=speed)
    best_speed, mix = speed(best), (best, best)
    for low in fits:
        for high in longer:
            part = (budget - low.seconds) / (high.seconds - low.seconds)  # of the steps that are long
            mixed = (low.rows + part * (high.rows - low.rows)) / budget
            if mixed > best_speed * WORTHWHILE:
                best_speed, mix = mixed, (low, high)
    return mix
