"""Many short prompts of code and chats, and their greedy answers by an engine that drafts in one way or another."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import inspect
import itertools
import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyjet.assets import default_model_path
from pyjet.engine.client import EngineLimits
from pyjet.engine.core import EngineCore
from pyjet.engine.counters import Counters
from pyjet.engine.request import Event, GenerationRequest, SamplingParams, TokenEvent
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation_settings import MAX_DRAFT_ROWS, SpeculationSettings
from pyjet.model.reader import load_model
from pyjet.model.tokenizer import Tokenizer
from pyjet.native.engine import NativeEngine

CHATS = Path(__file__).parents[2] / "compat_tests" / "data" / "eval-chats.jsonl"
MODULES = (argparse, ast, dataclasses, difflib, inspect, json, shutil, textwrap)
N_PROMPTS = 208
ALL = range(N_PROMPTS)
DRAFT_VOCAB = 1024  # a part, so that blocks of recent tokens matter
NUMBERS = (0, 1, 2, 3, 4, 6)
SETTINGS = EngineSettings(
    str(default_model_path()), n_slots=8, n_ctx_slot=128, n_ctx_total=1024, n_ubatch=96, n_threads=2, calibrate=False,
    speculation=SpeculationSettings(mtp=True, n_max=7, draft_vocab=DRAFT_VOCAB),
)  # fmt: skip

# What drafts as a test calls it, and how: a fixed number of the MTP block's with or without lookups beside them, or as
# many as pay. No drafts of the block are left to lookups alone.
DRAFTS = {
    f"{n} {'with' if lookup else 'without'} lookups": SpeculationSettings(
        mtp=n > 0, lookup=lookup, n_max=n or 7, lookup_min_match=1, draft_vocab=DRAFT_VOCAB, adaptive=False
    )
    for n, lookup in itertools.product(NUMBERS, (False, True))
}
DRAFTS["adaptive"] = SpeculationSettings(
    mtp=True, lookup=True, n_max=7, lookup_min_match=1, draft_vocab=DRAFT_VOCAB, adaptive=True
)


@cache
def prompts() -> tuple[tuple[int, ...], ...]:
    """N_PROMPTS different prompts of 12..60 tokens, by turns of code and of a chat."""
    tokenizer = Tokenizer.from_metadata(load_model(default_model_path()).metadata)
    code = (tokenizer.encode(inspect.getsource(module)) for module in MODULES)
    chats = (tokenizer.encode(text) for text in _chats())
    pairs = zip(_pieces(code, 16), _pieces(chats, 8))
    found = tuple(itertools.islice(itertools.chain.from_iterable(pairs), N_PROMPTS))
    assert len(found) == N_PROMPTS
    return found


def _chats() -> Iterator[str]:
    """What is said in each chat, and the tools that are called."""
    for line in CHATS.read_text(encoding="utf-8").splitlines():
        yield "\n".join(_texts(json.loads(line)["messages"]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value if isinstance(value, list) else value.values():
            yield from _texts(each)


def _pieces(texts: Iterable[Sequence[int]], n_each: int) -> Iterator[tuple[int, ...]]:
    """The first ``n_each`` pieces of each text that has so many, each of them once."""
    lengths = itertools.cycle(range(12, 61, 5))
    seen = set()
    for text in texts:
        begin = 0
        for length in itertools.islice(lengths, n_each):
            piece = tuple(text[begin : begin + length])
            if len(piece) == length and piece not in seen:
                yield piece
            seen.add(piece)
            begin += length


@dataclass
class Answers:
    """``tokens`` of each prompt by its number; ``counters`` of the core that gave them all."""

    tokens: dict[int, list[int]]
    counters: Counters


def limits_for(drafts: SpeculationSettings, n_vocab: int) -> EngineLimits:
    """With as many slots as all get their fixed number of drafts at once."""
    n_slots = SETTINGS.n_slots
    if drafts.mtp and not drafts.adaptive:
        n_slots = min(n_slots, MAX_DRAFT_ROWS // (1 + drafts.max_draft))
    return replace(SETTINGS, n_slots=n_slots, speculation=drafts).limits(n_vocab)


def answers(native: NativeEngine, drafts: SpeculationSettings, n_tokens: int, which: range = ALL) -> Answers:
    """Greedy answers of ``n_tokens`` each to these of the prompts."""
    core = EngineCore(limits_for(drafts, native.n_vocab), native)
    greedy = SamplingParams(temperature=0.0)
    events: list[Event] = []
    for i in which:
        events += core.submit(GenerationRequest(str(i), prompts()[i], greedy, max_tokens=n_tokens))
    while core.has_work:
        started, batch = core.begin()
        assert batch is not None
        events += started + core.finish(native.step(batch))
    tokens: dict[int, list[int]] = {i: [] for i in which}
    for event in events:
        if isinstance(event, TokenEvent):
            tokens[int(event.id)].append(event.token)
    assert {len(each) for each in tokens.values()} == {n_tokens}
    return Answers(tokens, core.counters())


def check_same(got: Answers, plain: Answers) -> None:
    """The text for every prompt is that without drafts."""
    different = [i for i, tokens in got.tokens.items() if tokens != plain.tokens[i]]
    assert not different, f"{len(different)} of {len(got.tokens)} answers differ, first that to prompt {different[0]}"


def check_drafts(got: Answers, drafts: SpeculationSettings) -> None:
    """Of each source some were right and some wrong; of a fixed number now and then all of them were right."""
    counters = got.counters
    sources = (
        (drafts.mtp, counters.draft_tokens_mtp_accepted, counters.draft_tokens_mtp),
        (drafts.lookup, counters.draft_tokens_lookup_accepted, counters.draft_tokens_lookup),
    )
    for is_on, n_right, n in sources:
        assert 0 < n_right < n if is_on else n == 0
    if drafts.is_on and not drafts.adaptive:
        assert len(counters.accepted_per_position) == drafts.n_max
        assert min(counters.accepted_per_position) > 0


def check_a_fault_is_noticed(native: NativeEngine, plain: Answers, n_tokens: int) -> None:
    """The caller has broken something: answers with drafts differ from those without."""
    with pytest.raises(AssertionError, match="answers differ"):
        check_same(answers(native, DRAFTS["3 without lookups"], n_tokens, ALL[:24]), plain)
