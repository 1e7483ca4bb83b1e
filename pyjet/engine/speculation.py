"""Speculation: which drafts each decoding sequence verifies in a step, and how many the MTP block makes for the next.

Drafts decide about speed only. Every row chooses its token as it would without them, and what follows a wrong draft is
thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import NamedTuple

import numpy as np

from pyjet.engine.acceptance import Acceptance, ConfidenceCells, Counts
from pyjet.engine.client import EngineLimits
from pyjet.engine.decode_prices import context_class
from pyjet.engine.draft_blocks import RecentBlocks
from pyjet.engine.draft_costs import RESTS, DraftCosts
from pyjet.engine.draft_counts import DraftCounts
from pyjet.engine.draft_depth import DraftDepth
from pyjet.engine.draft_policy import Company, DraftPolicy
from pyjet.engine.guesses import Guess, Guesses, Source
from pyjet.engine.head_blocks import HeadBlocks
from pyjet.engine.lookup import LookupIndex
from pyjet.engine.row_arrays import DraftPlan, Plan
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation_settings import MAX_DRAFT_ROWS
from pyjet.engine.step_costs import StepCosts
from pyjet.engine.step_lessons import StepLessons, StepShape
from pyjet.engine.synthetic import Lots
from pyjet.native.step import Float32Array, StepResult

FRESH_STEPS = 300  # prices of steps are not so old, or they are scaled


class Lesson(NamedTuple):
    """What was guessed about tokens that came; the first of them is token ``n_before`` of the answer.

    ``n_verified`` drafts of the source were in the step, of which ``n_right`` became tokens.
    """

    guesses: Guesses
    source: Source
    mtp: Guess
    lookup: Guess
    tokens: list[int]
    n_before: int
    n_verified: int
    n_right: int


# For tests: (sequence, drafts, most) -> drafts instead of these, of which ``most`` are taken.
DraftOverride = Callable[[Sequence, "list[int]", int], "list[int]"]


class Speculation:
    """Of one engine. Before a step ``choose`` and, once its rows are planned, ``join``; then ``note`` and ``learn``."""

    def __init__(self, limits: EngineLimits, override: DraftOverride | None = None) -> None:
        self._settings = settings = limits.speculation
        self._limits = limits
        self._override = override
        self.is_on = settings.is_on or override is not None
        self._is_adaptive = settings.is_adaptive
        self.counts = DraftCounts()
        # Of steps that only decode: among these a context's length changes slowly.
        self._costs = StepCosts(limits.step_seconds, FRESH_STEPS)
        self._passes = DraftCosts(limits.draft_seconds, self._costs.seconds(1))
        most_rows = limits.n_slots * (1 + max(limits.max_spec, settings.max_draft))
        self._policy = DraftPolicy(
            self._costs, self._passes, min(most_rows, limits.max_rows), limits.attention_blocks
        )
        self._depth = DraftDepth(self._policy, settings.max_draft)
        self._lessons = StepLessons(
            self._costs, self._passes, self._policy, self._depth.trials, is_calibrated=bool(limits.step_seconds)
        )
        self._seen = Counts()  # of all sequences
        self._n_draft = 0  # that sequences are asked for in this step
        self._prompt_rows = 0  # of the last step that had any
        self._company = Company(0)  # of the sequences that decode in it
        self._made: list[list[int]] = []  # by the step, for each of its sequences
        self._probabilities: Float32Array = np.empty((0, 0), np.float32)
        self._cells = ConfidenceCells(self._probabilities)
        self._blocks = HeadBlocks(is_sampled=settings.sampling == "probabilistic")

    def start(self, sequence: Sequence) -> None:
        """A sequence runs from now on."""
        settings = self._settings
        if sequence.guesses is not None or not self.is_on:
            return
        index = blocks = lots = None
        if sequence.pool is not None:
            sequence.guesses = Guesses(Acceptance(self._seen), None, None, None)
            return
        if settings.lookup:
            index = LookupIndex(
                sequence.tokens, settings.lookup_min_match, settings.lookup_size, settings.lookup_min_hits
            )
        if settings.mtp and settings.first_blocks:
            blocks = RecentBlocks(settings.first_blocks)
            blocks.read(sequence.tokens[: sequence.n_tokens])
        if settings.synth_rates:
            lots = Lots(settings.synth_rates, sequence.sampler.seed)
        sequence.guesses = Guesses(Acceptance(self._seen), index, blocks, lots)

    def choose(self, decoding: Items[Sequence], n_reading: int) -> None:
        """Set ``verifying`` and ``n_draft`` of all sequences that decode, while ``n_reading`` others read."""
        if not decoding:
            self._n_draft = self._depth.latest if self._is_adaptive else self._settings.max_draft
            return
        max_spec = self._limits.max_spec
        guesses: list[Guesses] = []
        aheads: list[int] = []  # positions behind the newest token of each that can be computed
        n_context = 0
        for sequence in decoding:
            each, n_tokens = guesses_of(sequence), sequence.n_tokens
            ahead = sequence.longest - n_tokens
            most = max_spec if max_spec < ahead else ahead
            if each.index is not None:
                each.look_up(n_tokens, most)
            if sequence.constraint is not None:
                each.force(sequence.constraint.forced()[:most])
            each.choose_source(most)
            guesses.append(each)
            aheads.append(ahead)
            n_context += n_tokens
        room, room_alone = self._room(len(decoding), n_reading)
        if self._is_adaptive:
            self._company = Company(len(decoding), self._prompt_rows if n_reading else 0, context_class(n_context))
            lengths = self._paying(guesses, room, room_alone)
        else:
            self._n_draft = self._settings.max_draft
            share, n_more = divmod(room, len(decoding))
            most = min(self._settings.most, max_spec)
            lengths = [min(most, ahead, share + (i < n_more)) for i, ahead in enumerate(aheads)]
        n_draft = self._n_draft
        for sequence, each, ahead, n in zip(decoding, guesses, aheads, lengths):
            sequence.verifying = drafts = self._chosen_drafts(sequence, each, n, min(max_spec, ahead))
            n_left = ahead - len(drafts)
            sequence.n_draft = n_draft if n_draft < n_left else n_left

    def _paying(self, guesses: list[Guesses], room: int, room_alone: int) -> list[int]:
        """Lengths of drafts that make most tokens per second, or those of a trial.

        ``room_alone``: for drafts of a step in which the MTP block has no part.
        """
        self._n_draft = self._depth.choose(guesses, self._company, room)
        if self._depth.verifies_all and (all_drafts := self._all_drafts(guesses, room)):
            return all_drafts
        chances = [each.chosen.chances for each in guesses]
        trial = self._depth.trial
        if trial is not None:
            return [min(trial.n_draft, len(each)) for each in chances]
        cut = self._policy.cut(chances, self._company, room, self._n_draft)
        if self._settings.lookup and room_alone > room and sum(cut.lengths) >= room:
            alone = self._policy.cut(chances, self._company, room_alone, RESTS)
            if alone.rate * (1.0 - self._lost_without_mtp(guesses, alone.lengths)) > cut.rate:
                self._n_draft = 0
                return alone.lengths
        return cut.lengths

    def _lost_without_mtp(self, guesses: list[Guesses], lengths: list[int]) -> float:
        """Tokens of the next step that there are no drafts for, over those of this one.

        Who copies goes on with it; of the others the MTP block's drafts of now say what its next ones would bring.
        """
        lost = sum([each.mtp.worth for each in guesses if each.source == "mtp"])
        return lost / (len(guesses) + sum([sum(each.chosen.chances[:n]) for each, n in zip(guesses, lengths)]))

    def _all_drafts(self, guesses: list[Guesses], room: int) -> list[int]:
        """How many each sequence has, if they are all the MTP block's and no more than it makes now; else none."""
        lengths = [len(each.mtp.tokens) for each in guesses if each.source == "mtp"]
        is_usual = len(lengths) == len(guesses) and max(lengths) <= self._depth.latest and sum(lengths) <= room
        return lengths if is_usual else []

    def _room(self, n_decoding: int, n_reading: int) -> tuple[int, int]:
        """Rows for drafts, of a step that makes others and of one that does not: in the former few rows choose tokens.

        Prompts need some too.
        """
        room = room_alone = max(0, (self._limits.max_rows - n_decoding) // (2 if n_reading else 1))
        if self._settings.mtp and n_decoding + n_reading <= MAX_DRAFT_ROWS:
            room = min(room, MAX_DRAFT_ROWS - n_decoding - n_reading)
        return room, room_alone

    def _chosen_drafts(self, sequence: Sequence, guesses: Guesses, n: int, most: int) -> list[int]:
        drafts = guesses.chosen.tokens[:n]
        n_more = n - len(drafts)
        if n_more and guesses.lots is not None and not self._is_adaptive:
            drafts += [sequence.generated[-1]] * n_more  # any will do
        if len(drafts) < self._settings.n_min:
            drafts = []
        return drafts if self._override is None else self._override(sequence, drafts, most)[:most]

    def join(self, plan: Plan) -> DraftPlan | None:
        """The MTP block's part in a planned step; also set ``n_draft`` of those that come to the end of a prompt."""
        n_rows = n_chosen = sum([n for _, n in plan])
        reading = [(s, n) for s, n in plan if s.n_computed < s.n_to_read]
        if reading:
            self._prompt_rows = sum([n for _, n in reading])
            n_chosen += self._join_reading(reading) - self._prompt_rows
        # What is read is read with its KV, whether drafts pay now or not.
        takes_part = self._n_draft or reading or self._depth.is_warm
        drafts = None
        if self._settings.mtp and takes_part and n_chosen <= MAX_DRAFT_ROWS:
            drafts = self._blocks.plan_for(plan)
        else:
            for sequence, _ in plan:
                sequence.n_draft = 0
        n_draft = RESTS if drafts is None else max([sequence.n_draft for sequence, _ in plan])
        if reading:
            self._lessons.shape = StepShape(n_rows, 0, n_draft, None, None)
        else:
            widest, tokens = max([n for _, n in plan]), self._tokens_of_trial(plan, n_rows)
            self._lessons.shape = StepShape(n_rows, widest, n_draft, self._company, tokens)
        return drafts

    def _join_reading(self, reading: Plan) -> int:
        """How many of those that read come to the end of what they read: a token is chosen for each."""
        n_ending = 0
        for sequence, n in reading:
            if (index := guesses_of(sequence).index) is not None:
                index.extend(sequence.n_computed + n)
            sequence.n_draft = 0
            if sequence.n_chosen(n):
                sequence.n_draft = min(self._n_draft, sequence.n_ahead, sequence.n_covered - sequence.n_to_read)
                n_ending += 1
        return n_ending

    def _tokens_of_trial(self, plan: Plan, n_rows: int) -> float | None:
        """Expected of the step, if it is part of a trial."""
        if self._depth.trial is None:
            return None
        self._depth.trials.note_rows(n_rows)
        return len(plan) + sum([sum(guesses_of(s).chosen.chances[: len(s.verifying)]) for s, _ in plan])

    def observe(self, seconds: float) -> float:
        """The planned step took so long; how much of that was the MTP block's part. What it teaches can wait."""
        return self._lessons.observe(seconds)

    def read(self, result: StepResult, drafts: DraftPlan | None) -> None:
        """The drafts that a step made."""
        if drafts is not None:
            self._made = result.drafts.tolist()
            self._probabilities = result.draft_probs
            self._cells = ConfidenceCells(result.draft_probs)

    def note(
        self, sequence: Sequence, index: int, tokens: list[int], n_right: int, *, is_as_guessed: bool = True
    ) -> Lesson:
        """A sequence, which has place ``index`` in the step, got these tokens, of which ``n_right`` are drafts.

        ``is_as_guessed``: the MTP block took them for the right ones. What to learn from them can wait.
        """
        guesses = guesses_of(sequence)
        n_before = len(sequence.generated) - len(tokens)
        n_verified, n_draft = len(sequence.verifying), sequence.n_draft
        lesson = Lesson(guesses, guesses.source, guesses.mtp, guesses.lookup, tokens, n_before, n_verified, n_right)
        guesses.forget()
        # Drafts for what follows are of use when the MTP block made them behind the same tokens; lots do not care.
        if n_draft and (is_as_guessed or guesses.lots is not None):
            probabilities = self._probabilities[index].tolist() if self._settings.p_min else ()
            guesses.take_mtp(self._made[index][:n_draft], self._cells, index, probabilities, self._settings.p_min)
            if self._is_adaptive and not self._depth.verifies_all:
                _ = guesses.mtp.chances  # by the rates of now; where all drafts are verified nobody asks
        return lesson

    def learn(self, lesson: Lesson) -> None:
        """From what came of a sequence's drafts."""
        if lesson.n_verified:
            self.counts.add(lesson.source, lesson.n_verified, lesson.n_right)
        lesson.guesses.learn(lesson.mtp, lesson.lookup, lesson.tokens, lesson.n_before)
        if lesson.guesses.blocks is not None:
            for token in lesson.tokens:
                lesson.guesses.blocks.add(token)

    def think(self) -> None:
        """Learn what steps take, and decide how many drafts are made from now on. There is time while one computes."""
        if self._lessons.learn():
            self._blocks.think()
            if self._is_adaptive:
                self._depth.think()


def guesses_of(sequence: Sequence) -> Guesses:
    """Of a sequence that runs, which always has some while there is speculation."""
    assert sequence.guesses is not None
    return sequence.guesses
