"""Speculation: which drafts each decoding sequence verifies in a step, and how many the MTP block makes for the next.

Drafts decide about speed only. Every row chooses its token as it would without them, and what follows a wrong draft is
thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import NamedTuple

import numpy as np

from pyjet.engine.acceptance import Acceptance, Counts
from pyjet.engine.batch import DraftPlan, Plan
from pyjet.engine.chosen import Chosen
from pyjet.engine.client import EngineLimits
from pyjet.engine.draft_blocks import RecentBlocks, merged
from pyjet.engine.draft_costs import RESTS, DraftCosts
from pyjet.engine.draft_counts import DraftCounts
from pyjet.engine.draft_depth import DraftDepth
from pyjet.engine.draft_policy import Company, DraftPolicy
from pyjet.engine.guesses import Guess, Guesses, Source
from pyjet.engine.lookup import LookupIndex
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation_settings import MAX_DRAFT_ROWS
from pyjet.engine.step_costs import StepCosts
from pyjet.engine.synthetic import Lots
from pyjet.native.step import StepResult

FRESH_STEPS = 300  # prices of steps are not so old, or they are scaled


class Lesson(NamedTuple):
    """What was guessed about tokens that came; the first of them is token ``n_before`` of the answer."""

    guesses: Guesses
    source: Source
    mtp: Guess
    lookup: Guess
    chosen: Items[Chosen]
    n_before: int
    n_verified: int


# For tests: (sequence, drafts, most) -> drafts instead of these, of which ``most`` are taken.
DraftOverride = Callable[[Sequence, "list[int]", int], "list[int]"]


class Speculation:
    """Of one engine. Before a step ``choose`` and, once its rows are planned, ``join``; then ``note`` and ``learn``."""

    def __init__(self, limits: EngineLimits, override: DraftOverride | None = None) -> None:
        self._settings = settings = limits.speculation
        self._limits = limits
        self._override = override
        self.is_on = settings.is_on or override is not None
        self.counts = DraftCounts()
        # Of steps that only decode: among these a context's length changes slowly.
        self._costs = StepCosts(limits.step_seconds, FRESH_STEPS)
        self._passes = DraftCosts(limits.draft_seconds, self._costs.seconds(1))
        self._policy = DraftPolicy(self._costs, self._passes)
        self._depth = DraftDepth(self._policy, settings.max_draft)
        self._seen = Counts()  # of all sequences
        self._n_draft = 0  # that sequences are asked for in this step
        self._prompt_rows = 0  # of the last step that had any
        self._made: list[list[int]] = []  # by the step, for each of its sequences
        self._probabilities: list[list[float]] = []
        self._draft_plan = DraftPlan(np.empty(0, np.int32), settings.sampling == "probabilistic")
        self._blocks_of: list[tuple[int, int]] = []  # whose blocks are in the plan, as of which version

    def start(self, sequence: Sequence) -> None:
        """A sequence runs from now on."""
        settings = self._settings
        if sequence.guesses is not None or not self.is_on:
            return
        index = blocks = lots = None
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
        self._policy.begin_step()
        if not decoding:
            self._n_draft = self._depth.latest if self._settings.is_adaptive else self._settings.max_draft
            return
        mosts = [min(self._limits.max_spec, sequence.n_ahead) for sequence in decoding]
        guesses = [guesses_of(sequence) for sequence in decoding]
        for sequence, each, most in zip(decoding, guesses, mosts):
            each.look_up(sequence.n_tokens, most)
            if sequence.constraint is not None:
                each.force(sequence.constraint.forced()[:most])
            each.choose_source(most)
        room = self._room(len(decoding), n_reading)
        if self._settings.is_adaptive:
            company = Company(len(decoding), self._prompt_rows if n_reading else 0)
            self._n_draft = self._depth.choose(guesses, company, room)
            lengths = self._policy.cut([each.chosen.chances for each in guesses], company, room, self._n_draft).lengths
        else:
            self._n_draft = self._settings.max_draft
            share, n_more = divmod(room, len(decoding))
            lengths = [min(self._settings.most, most, share + (i < n_more)) for i, most in enumerate(mosts)]
        for sequence, most, n in zip(decoding, mosts, lengths):
            sequence.verifying = self._chosen_drafts(sequence, n, most)
            sequence.n_draft = min(self._n_draft, sequence.n_ahead - len(sequence.verifying))

    def _room(self, n_decoding: int, n_reading: int) -> int:
        """Rows for drafts. Prompts need some too; in steps that make drafts few rows may want tokens."""
        room = self._limits.max_rows - n_decoding
        if n_reading:
            room //= 2
        if self._settings.mtp and n_decoding + n_reading <= MAX_DRAFT_ROWS:
            room = min(room, MAX_DRAFT_ROWS - n_decoding - n_reading)
        return max(0, room)

    def _chosen_drafts(self, sequence: Sequence, n: int, most: int) -> list[int]:
        guesses = guesses_of(sequence)
        drafts = guesses.chosen.tokens[:n]
        if guesses.lots is not None and not self._settings.is_adaptive:
            drafts += [sequence.generated[-1]] * (n - len(drafts))  # any will do
        if len(drafts) < self._settings.n_min:
            drafts = []
        return drafts if self._override is None else self._override(sequence, drafts, most)[:most]

    def join(self, plan: Plan) -> DraftPlan | None:
        """The MTP block's part in a planned step; also set ``n_draft`` of those that come to the end of a prompt."""
        reading = [(s, n) for s, n in plan if not s.is_decoding]
        ending = [s for s, n in reading if s.n_computed + n == s.n_to_read]
        self._prompt_rows = sum(n for _, n in reading) or self._prompt_rows
        for sequence, n in reading:
            if (index := guesses_of(sequence).index) is not None:
                index.extend(sequence.n_computed + n)
            sequence.n_draft = 0
        for sequence in ending:
            sequence.n_draft = min(self._n_draft, sequence.n_ahead, sequence.n_covered - sequence.n_to_read)
        n_chosen = sum(s.n_rows for s, _ in plan if s.is_decoding) + len(ending)
        # What is read is read with its KV, whether drafts pay now or not.
        takes_part = self._n_draft or reading or self._depth.is_warm
        if self._settings.mtp and takes_part and n_chosen <= MAX_DRAFT_ROWS:
            return self._with_blocks(plan)
        for sequence, _ in plan:
            sequence.n_draft = 0
        return None

    def _with_blocks(self, plan: Plan) -> DraftPlan:
        """The same plan as before while the blocks of those that want drafts are the same."""
        recents = [(s.id_task, r) for s, _ in plan if s.n_draft and (r := guesses_of(s).blocks) is not None]
        versions = [(id_task, recent.version) for id_task, recent in recents]
        if recents and versions != self._blocks_of:
            self._blocks_of = versions
            blocks = merged(recent for _, recent in recents)
            if not np.array_equal(blocks, self._draft_plan.blocks):
                self._draft_plan = DraftPlan(blocks, self._draft_plan.is_sampled)
        return self._draft_plan

    def observe(self, plan: Plan, drafts: DraftPlan | None, seconds: float) -> float:
        """A step took so long; how much of that was the MTP block's part."""
        n_draft = RESTS if drafts is None else max(sequence.n_draft for sequence, _ in plan)
        of_drafts = min(self._passes.seconds(n_draft), 0.5 * seconds)
        n_rows = sum(n for _, n in plan)
        only_decodes = all(sequence.is_decoding for sequence, _ in plan)
        if only_decodes:
            self._passes.observe(n_rows, n_draft, seconds)
        if only_decodes or not self._limits.step_seconds:  # without calibration prompts tell about larger sizes
            self._costs.observe(n_rows, seconds - of_drafts)
        return of_drafts

    def read(self, result: StepResult, drafts: DraftPlan | None) -> None:
        """The drafts that a step made."""
        self._made = [] if drafts is None else result.drafts.tolist()
        self._probabilities = [] if drafts is None else result.draft_probs.tolist()

    def note(self, sequence: Sequence, index: int, chosen: Items[Chosen]) -> Lesson:
        """A sequence, which has place ``index`` in the step, got these tokens. What to learn from them can wait."""
        guesses = guesses_of(sequence)
        n_before = len(sequence.generated) - len(chosen)
        lesson = Lesson(guesses, guesses.source, guesses.mtp, guesses.lookup, chosen, n_before, len(sequence.verifying))
        guesses.forget()
        n_draft = sequence.n_draft
        # Drafts for what follows are of use when the MTP block made them behind the same tokens; lots do not care.
        if n_draft and (guesses.lots is not None or all(each.guess == each.token for each in chosen)):
            guesses.take_mtp(self._made[index][:n_draft], self._probabilities[index][:n_draft], self._settings.p_min)
        return lesson

    def learn(self, lesson: Lesson) -> None:
        """From what came of a sequence's drafts."""
        tokens = [each.token for each in lesson.chosen]
        if lesson.n_verified:
            self.counts.add(lesson.source, lesson.n_verified, sum(each.is_draft for each in lesson.chosen))
        lesson.guesses.learn(lesson.mtp, lesson.lookup, tokens, lesson.n_before)
        if lesson.guesses.blocks is not None:
            for token in tokens:
                lesson.guesses.blocks.add(token)


def guesses_of(sequence: Sequence) -> Guesses:
    """Of a sequence that runs, which always has some while there is speculation."""
    assert sequence.guesses is not None
    return sequence.guesses
