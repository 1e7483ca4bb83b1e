"""Drafts of the MTP block in the step: those that the block makes in steps of its own, after whatever row was right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from pyjet.native import (
    ROW_ARGMAX,
    ROW_HIDDEN,
    ROW_LOGITS,
    ROW_SAMPLE,
    SAMPLE_DTYPE,
    EngineConfig,
    NativeEngine,
    NativeError,
    StepBatch,
    StepResult,
    sample_row,
)
from pyjet.native.samples import no_biases, no_counts
from pyjet.native.structs import MAX_DRAFT
from tests.native.conftest import MakeModel
from tests.support.native_steps import Part, make_batch, same_bits

TEXT = np.random.default_rng(3).integers(0, 7424, 90).tolist()


def config(**changes: object) -> EngineConfig:
    base = EngineConfig(n_pages=32, n_state_slots=3, max_rows=256, max_spec=7, n_threads=2, max_draft=MAX_DRAFT)
    return replace(base, **changes)


@pytest.fixture(scope="module")
def engine(tiny_model: MakeModel) -> Iterator[NativeEngine]:
    with NativeEngine(tiny_model("Q4_K_M"), config()) as engine:
        yield engine


def drafting_batch(*parts: Part, following: list[list[int]], blocks: list[int] | None = None) -> StepBatch:
    """``following``: of each part the tokens after its rows, -1 where they are chosen. Only those rows want tokens."""
    batch = make_batch(*parts)
    row_next = np.concatenate([np.asarray(tokens, np.int32) for tokens in following])
    flags = np.where(row_next < 0, batch.row_flags, np.uint32(0)).astype(np.uint32)
    return replace(batch, row_next=row_next, row_flags=flags, draft_blocks=np.array(blocks or [], np.int32))


def read(engine: NativeEngine, tokens: list[int], *, slot: int = 0, pages: range = range(8), n_draft: int = 0,
         chunk: int = 256) -> StepResult:  # fmt: skip
    """Read a prompt; the token after it is chosen."""
    for start in range(0, len(tokens), chunk):
        rows = tokens[start : start + chunk]
        is_last = start + chunk >= len(tokens)
        part = Part(rows, start, slot, pages, flags=ROW_ARGMAX, n_draft=n_draft if is_last else 0)
        after = [*tokens[start + 1 : start + len(rows)], -1 if is_last else tokens[start + len(rows)]]
        result = engine.step(drafting_batch(part, following=[after]))
    return result


@dataclass
class Reference:
    """What an engine does that knows nothing of drafts in steps: trunk and MTP block one after the other."""

    engine: NativeEngine
    slot: int = 2
    pages: range = range(16, 24)

    def drafts(self, tokens: list[int], n: int) -> list[int]:
        """``n`` drafts after ``tokens``, the last of which the model has chosen."""
        out: list[int] = []
        while len(out) < n:
            out.append(int(np.argmax(self.logits([*tokens, *out], len(tokens)))))
        return out

    def logits(self, tokens: list[int], n_known: int) -> np.ndarray:
        """The MTP block's logits after ``tokens``, of which those from ``n_known`` on are drafts of its own."""
        part = Part(tokens[: n_known - 1], 0, self.slot, self.pages, flags=ROW_HIDDEN)
        hidden = self.engine.step(make_batch(part)).hidden.copy()
        flags = ROW_LOGITS | ROW_HIDDEN
        rows = Part(tokens[1:n_known], 0, self.slot, self.pages, flags=flags, reset=False)
        result = self.engine.mtp(make_batch(rows), hidden)
        for position in range(n_known - 1, len(tokens) - 1):
            rows = Part([tokens[position + 1]], position, self.slot, self.pages, flags=flags, reset=False)
            result = self.engine.mtp(make_batch(rows), result.hidden[-1:].copy())
        return result.logits[-1].copy()


def wanted_drafts(result: StepResult, index: int, n: int) -> list[int]:
    assert (result.drafts[index, n:] == -1).all()
    probs = result.draft_probs[index, :n]
    assert ((probs > 0) & (probs <= 1)).all()
    return result.drafts[index, :n].tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_after_a_prompt(engine: NativeEngine, n: int) -> None:
    result = read(engine, TEXT, n_draft=n, chunk=40)
    chosen = int(result.argmax[-1])
    assert wanted_drafts(result, 0, n) == Reference(engine).drafts([*TEXT, chosen], n)


@pytest.mark.parametrize("n_right", range(5))
def test_after_the_row_that_was_accepted_last(engine: NativeEngine, n_right: int) -> None:
    """Four drafts, the first n_right of them right."""
    tokens = [*TEXT, int(read(engine, TEXT).argmax[-1])]
    truth = greedy(engine, tokens, 4)
    read(engine, TEXT)
    drafts = [token if i < n_right else (token + 1) % 7424 for i, token in enumerate(truth)]
    part = Part([tokens[-1], *drafts], len(TEXT), 0, range(8), n_spec=4, flags=ROW_ARGMAX, n_verify=4, n_draft=3)
    result = engine.step(drafting_batch(part, following=[[-1] * 5]))
    assert result.argmax[:n_right].tolist() == truth[:n_right]
    newest = int(result.argmax[n_right])
    expected = Reference(engine).drafts([*tokens, *truth[:n_right], newest], 3)
    assert wanted_drafts(result, 0, 3) == expected


def greedy(engine: NativeEngine, tokens: list[int], n: int) -> list[int]:
    """The ``n`` tokens that follow, chosen without drafts."""
    out = list(tokens)
    for _ in range(n):
        part = Part(out, 0, 1, range(8, 16), flags=0)
        batch = make_batch(part)
        batch.row_flags[-1] = ROW_ARGMAX
        out.append(int(engine.step(batch).argmax[-1]))
    return out[len(tokens) :]


def sample(seed: int, index: int) -> np.ndarray:
    """pj_sample of the server's defaults with a higher temperature."""
    record = np.zeros(1, SAMPLE_DTYPE)
    record["seed"], record["index"] = seed, index
    record["top_p"], record["min_p"], record["top_k"], record["temperature"] = 0.95, 0.05, 40, 1.2
    record["repeat_penalty"] = 1.0
    return record


@pytest.mark.parametrize("seed", range(6))
def test_drawn_drafts(engine: NativeEngine, seed: int) -> None:
    """A draft is what the MTP block's logits give to the sample of its place in the answer."""
    reference = Reference(engine)
    part = Part(TEXT, 0, 0, range(8), flags=ROW_SAMPLE, n_draft=3)
    batch = replace(drafting_batch(part, following=[[*TEXT[1:], -1]]), samples=sample(seed, 5))
    batch.seqs["draft_sample"] = 0
    result = engine.step(batch)
    drafts = wanted_drafts(result, 0, 3)
    tokens = [*TEXT, int(result.sampled[-1])]
    for i, draft in enumerate(drafts):
        logits = reference.logits([*tokens, *drafts[:i]], len(tokens))
        assert draft == sample_row(logits, sample(seed, 6 + i), no_counts(), no_biases())


@pytest.mark.parametrize("n_right", range(3))
def test_drawn_drafts_after_a_verified_row(engine: NativeEngine, n_right: int) -> None:
    tokens = list(TEXT)
    for i in range(3):
        tokens.append(sampled_after(engine, tokens, sample(9, i)))
    read(engine, TEXT)
    newest, right = tokens[len(TEXT)], tokens[len(TEXT) + 1 :]
    drafts = [token if i < n_right else (token + 1) % 7424 for i, token in enumerate(right)]
    part = Part([newest, *drafts], len(TEXT), 0, range(8), n_spec=2, flags=ROW_SAMPLE, n_verify=2, n_draft=2)
    samples = np.concatenate([sample(9, 1 + i) for i in range(3)])
    batch = replace(drafting_batch(part, following=[[-1] * 3]), samples=samples)
    batch.seqs["draft_sample"] = 0
    result = engine.step(batch)
    assert result.sampled[:n_right].tolist() == right[:n_right]
    known = [*tokens[: len(TEXT) + 1 + n_right], int(result.sampled[n_right])]
    made = wanted_drafts(result, 0, 2)
    for i, draft in enumerate(made):
        logits = Reference(engine).logits([*known, *made[:i]], len(known))
        assert draft == sample_row(logits, sample(9, 2 + n_right + i), no_counts(), no_biases())


def sampled_after(engine: NativeEngine, tokens: list[int], record: np.ndarray) -> int:
    batch = make_batch(Part(tokens, 0, 1, range(8, 16), flags=0))
    batch.row_flags[-1] = ROW_SAMPLE
    return int(engine.step(replace(batch, samples=record)).sampled[-1])


def test_several_sequences_beside_a_prompt(engine: NativeEngine) -> None:
    """One verifies and wants three drafts, one wants one, a prompt wants none."""
    first, second = TEXT[:50], TEXT[20:81]
    one = [*first, int(read(engine, first).argmax[-1])]
    two = [*second, int(read(engine, second, slot=1, pages=range(8, 16)).argmax[-1])]
    parts = [
        Part([one[-1], 5], len(first), 0, range(8), n_spec=1, flags=ROW_ARGMAX, n_verify=1, n_draft=3),
        Part(two[-1:], len(second), 1, range(8, 16), flags=ROW_ARGMAX, n_draft=1),
        Part(TEXT[:30], 0, 2, range(24, 26), flags=ROW_ARGMAX),
    ]
    result = engine.step(drafting_batch(*parts, following=[[-1, -1], [-1], TEXT[1:31]]))
    chosen = int(result.argmax[0])
    assert chosen != 5
    drafts = [wanted_drafts(result, 0, 3), wanted_drafts(result, 1, 1), wanted_drafts(result, 2, 0)]
    next_two = int(result.argmax[2])
    reference = Reference(engine)
    assert drafts[:2] == [reference.drafts([*one, chosen], 3), reference.drafts([*two, next_two], 1)]


def test_the_trunk_does_not_notice(engine: NativeEngine) -> None:
    read(engine, TEXT, n_draft=3)
    state = engine.state_read(0)
    engine.step(make_batch(Part(TEXT, 0, 1, range(8, 16), flags=ROW_ARGMAX)))
    assert same_bits(engine.state_read(1), state)


def test_ids_of_the_draft_head(tiny_model: MakeModel) -> None:
    """Few ids: drafts are the best of these. A step's blocks add theirs."""
    with NativeEngine(tiny_model("Q4_K_M"), config()) as full:
        lengths = range(30, 90, 5)
        best = {n: int(read(full, TEXT[:n], n_draft=1).drafts[0, 0]) for n in lengths}
    n, draft = max(best.items(), key=lambda item: item[1])
    assert draft >= 128
    with NativeEngine(tiny_model("Q4_K_M"), config(draft_vocab=128)) as engine:
        few = read(engine, TEXT[:n], n_draft=3)
        assert ((few.drafts[0, :3] < 128) & (few.drafts[0, :3] >= 0)).all()
        part = Part(TEXT[:n], 0, 0, range(8), flags=ROW_ARGMAX, n_draft=1)
        for blocks in ([draft // 64], [100, draft // 64, 3]):
            result = engine.step(drafting_batch(part, following=[[*TEXT[1:n], -1]], blocks=blocks))
            assert result.drafts[0, 0] == draft


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_draft": 8}, "n_draft is 8"),
        ({"n_verify": 2}, "n_verify is 2"),
        ({"pages": (0,), "n_draft": 7}, "reach position"),
    ],
)
def test_refusals(engine: NativeEngine, change: dict[str, object], message: str) -> None:
    part = Part(TEXT[:60], 0, 0, (0,), flags=ROW_ARGMAX)
    part = replace(part, **change)  # type: ignore[arg-type]
    with pytest.raises(NativeError, match=message):
        engine.step(drafting_batch(part, following=[[*TEXT[1:60], -1]]))


def test_a_row_must_know_what_follows(engine: NativeEngine) -> None:
    part = Part(TEXT[:3], 0, flags=ROW_ARGMAX)
    batch = drafting_batch(part, following=[[*TEXT[1:3], -1]])
    batch.row_flags[-1] = 0
    with pytest.raises(NativeError, match="wants no token"):
        engine.step(batch)


def test_drafts_follow_a_chosen_token(engine: NativeEngine) -> None:
    part = Part(TEXT[:3], 0, flags=ROW_ARGMAX, n_draft=2)
    with pytest.raises(NativeError, match="stands before drafts"):
        engine.step(drafting_batch(part, following=[TEXT[1:4]]))


def test_a_model_without_the_block(synthetic_model: MakeModel) -> None:
    model = synthetic_model("micro", "F32")
    if model.hyperparams.n_nextn:
        pytest.skip("this model has an MTP block")
    with pytest.raises(NativeError, match="no MTP block"):
        NativeEngine(model, config())


def test_hidden_rows_come_with_drafts_too(engine: NativeEngine) -> None:
    """A text whose hidden rows are wanted, beside a prompt in the middle, then beside one that ends and drafts."""
    text, prompt = TEXT[:50], TEXT[40:]
    alone = engine.step(make_batch(Part(text, 0, 2, range(16, 24), flags=ROW_HIDDEN))).hidden.copy()
    got = []
    for start in (0, 25):
        rows = Part(text[start : start + 25], start, 0, range(8), flags=ROW_HIDDEN)
        ends = start == 25
        beside = Part(prompt[start : start + 25], start, 1, range(8, 16), flags=ROW_ARGMAX, n_draft=3 * ends)
        batch = make_batch(rows, beside)
        batch.row_flags[25:-1] = 0
        batch.row_flags[-1] *= ends
        after = [*text[start + 1 : start + 25], 0, *prompt[start + 1 : start + 25], -1 if ends else prompt[25]]
        result = engine.step(replace(batch, row_next=np.array(after, np.int32)))
        got.append(result.hidden.copy())
    assert same_bits(np.concatenate(got), alone)
    assert wanted_drafts(result, 1, 3) == Reference(engine).drafts([*prompt, int(result.argmax[-1])], 3)
