"""Rows sampled in a step: the token that the row's own logits and parameters give, whatever else the step does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pyjet.model.reader import Model
from pyjet.native import (
    BIAS_DTYPE,
    COUNT_DTYPE,
    ROW_ARGMAX,
    ROW_HIDDEN,
    ROW_LOGITS,
    ROW_SAMPLE,
    SAMPLE_DTYPE,
    EngineConfig,
    NativeEngine,
    StepBatch,
    StepResult,
    sample_row,
)
from pyjet.native.samples import NO_MASK, mask_words
from tests.native.conftest import MakeModel
from tests.support.native_steps import Part, make_batch, same_bits

N_SLOTS, N_ROWS = 40, 100  # the CUDA backend keeps the logits of 32 rows at a time
N_VOCAB = 7424  # of pyjet-tiny
UNSETTLED = (5, 1.0, 0.0, 5.0, 1.0, 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0)  # nothing is cut


@pytest.fixture(scope="module")
def model(tiny_model: MakeModel) -> Model:
    return tiny_model("Q4_K_M")


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[NativeEngine]:
    config = EngineConfig(n_pages=64, n_state_slots=N_SLOTS, page_tokens=16, max_rows=N_ROWS, max_spec=3, n_threads=2)
    with NativeEngine(model, config) as engine:
        yield engine


def random_samples(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples of every kind with their counts and biases, among them some that are not settled."""
    samples = np.zeros(n, SAMPLE_DTYPE)
    counts, biases = [], []
    for i in range(n):
        seen = np.sort(rng.choice(N_VOCAB, rng.choice([0, 5, 64]), replace=False))
        biased = np.sort(rng.choice(N_VOCAB, rng.choice([0, 3, 64]), replace=False))
        samples[i] = (
            rng.integers(1 << 64, dtype=np.uint64), rng.choice([0.5, 0.9, 0.95, 1.0]), rng.choice([0.0, 0.02, 0.3]),
            rng.choice([0.0, 0.5, 0.8, 1.0, 2.0]), rng.choice([1.0, 1.2]), rng.choice([0.0, 0.3]),
            rng.choice([0.0, 0.6]), rng.choice([0, 1, 40, 1024, 1 << 30]), rng.choice([0, 5]),
            len(counts), len(seen), len(biases), len(biased), rng.integers(1 << 31), 0,
        )  # fmt: skip
        counts += [(int(token), int(rng.integers(1, 4))) for token in seen]
        biases += [(int(token), float(rng.choice([-np.inf, -1.0, 4.0]))) for token in biased]
    samples[::7] = UNSETTLED
    return samples, np.array(counts, COUNT_DTYPE), np.array(biases, BIAS_DTYPE)


def sampled(batch: StepBatch, rng: np.random.Generator) -> StepBatch:
    """The batch with parameters for its rows flagged ROW_SAMPLE."""
    samples, counts, biases = random_samples(rng, int(np.count_nonzero(batch.row_flags & ROW_SAMPLE)))
    return replace(batch, samples=samples, counts=counts, biases=biases)


def short_sequences(n: int, flags: int = ROW_LOGITS | ROW_SAMPLE) -> StepBatch:
    """Sequences of one or two rows, each on a page of its own."""
    rng = np.random.default_rng(4)
    parts = [
        Part(rng.integers(0, N_VOCAB, 1 + i % 2).tolist(), slot=i, pages=[i], flags=flags) for i in range(n)
    ]  # fmt: skip
    return make_batch(*parts)


def expected_tokens(batch: StepBatch, logits: np.ndarray) -> list[int]:
    """By the library's single op, from the logits of the rows to sample in order."""
    return [
        sample_row(row, batch.samples[i : i + 1], batch.counts, batch.biases) for i, row in enumerate(logits)
    ]  # fmt: skip


def kept(result: StepResult) -> StepResult:
    """A result that the next step does not overwrite."""
    return StepResult(
        result.logits.copy(), result.hidden.copy(), result.argmax.copy(), result.sampled.copy(), result.step_us
    )


def test_tokens_are_those_of_the_rows_logits(engine: NativeEngine) -> None:
    batch = sampled(short_sequences(N_SLOTS), np.random.default_rng(1))
    result = engine.step(batch)
    assert result.sampled.tolist() == expected_tokens(batch, result.logits)
    assert np.count_nonzero(result.sampled < 0) >= len(result.sampled) // 7
    assert len(set(result.sampled.tolist())) > 20


def test_logits_are_not_changed_by_sampling(engine: NativeEngine) -> None:
    plain = engine.step(short_sequences(N_SLOTS, ROW_LOGITS)).logits.copy()
    assert same_bits(engine.step(sampled(short_sequences(N_SLOTS), np.random.default_rng(2))).logits, plain)


def test_rows_that_are_not_settled_bring_their_logits(engine: NativeEngine) -> None:
    with_logits = sampled(short_sequences(N_SLOTS), np.random.default_rng(1))
    expected = kept(engine.step(with_logits))
    only = replace(with_logits, row_flags=np.full_like(with_logits.row_flags, ROW_SAMPLE))
    result = engine.step(only)
    assert result.sampled.tolist() == expected.sampled.tolist()
    unsettled = result.sampled < 0
    assert unsettled.any() and same_bits(result.logits[unsettled], expected.logits[unsettled])


def test_all_flags_in_one_step(engine: NativeEngine) -> None:
    """Rows with every combination of flags get what each flag asks for, in row order."""
    everything = ROW_LOGITS | ROW_ARGMAX | ROW_HIDDEN
    plain = kept(engine.step(short_sequences(N_SLOTS, everything)))
    batch = short_sequences(N_SLOTS, 0)
    batch.row_flags[:] = np.random.default_rng(5).integers(0, 16, len(batch.tokens))
    batch = sampled(batch, np.random.default_rng(6))
    result = engine.step(batch)
    flags = batch.row_flags
    assert result.argmax.tolist() == np.where(flags & ROW_ARGMAX, plain.argmax, -1).tolist()
    assert same_bits(result.hidden, plain.hidden[(flags & ROW_HIDDEN) != 0])
    to_sample = (flags & ROW_SAMPLE) != 0
    assert result.sampled[to_sample].tolist() == expected_tokens(batch, plain.logits[to_sample])
    assert (result.sampled[~to_sample] == -1).all()
    rows = np.flatnonzero(flags & (ROW_LOGITS | ROW_SAMPLE))
    is_written = ((flags[rows] & ROW_LOGITS) != 0) | (result.sampled[rows] < 0)
    assert result.logits.shape[0] == len(rows) and same_bits(result.logits[is_written], plain.logits[rows[is_written]])


def test_alone_as_beside_others(engine: NativeEngine) -> None:
    together = sampled(short_sequences(N_SLOTS), np.random.default_rng(1))
    expected = engine.step(together).sampled.copy()
    for seq in (0, 1, 17, 18, N_SLOTS - 1):
        rows = np.flatnonzero(together.row_seq == seq)
        alone = make_batch(Part(together.tokens[rows].tolist(), slot=seq, pages=[seq], flags=ROW_SAMPLE))
        result = engine.step(replace(alone, samples=together.samples[rows], counts=together.counts,
                                     biases=together.biases))  # fmt: skip
        assert result.sampled.tolist() == expected[rows].tolist()


def test_a_row_is_sampled_the_same_again_and_again(engine: NativeEngine) -> None:
    batch = sampled(short_sequences(N_SLOTS, ROW_SAMPLE), np.random.default_rng(3))
    first = engine.step(batch).sampled.copy()
    for _ in range(5):
        assert engine.step(batch).sampled.tolist() == first.tolist()


def test_a_batch_is_sampled_anew_when_its_records_change(engine: NativeEngine) -> None:
    """The contents of the arrays may change between two steps of the same batch."""
    batch = sampled(short_sequences(8), np.random.default_rng(9))
    engine.step(batch)
    batch.samples["seed"] = 2
    batch.samples["top_k"] = 1000
    batch.samples["temperature"] = 3.0
    result = engine.step(batch)
    assert result.sampled.tolist() == expected_tokens(batch, result.logits)


def test_the_most_penalised_tokens(engine: NativeEngine) -> None:
    samples = np.zeros(1, SAMPLE_DTYPE)
    samples[0] = (5, 1.0, 0.0, 1.0, float(np.finfo(np.float32).max), 0.0, 0.0, 40, 0, 0, 1024, 0, 0, 0, 0)
    counts = np.array([(token, 1) for token in range(1024)], COUNT_DTYPE)
    batch = make_batch(Part([5], flags=ROW_SAMPLE | ROW_LOGITS))
    batch = replace(batch, samples=samples, counts=counts)
    result = engine.step(batch)
    assert result.sampled.tolist() == expected_tokens(batch, result.logits)
    assert result.sampled[0] >= 1024


def test_an_infinite_logit_is_left_to_the_host(engine: NativeEngine) -> None:
    plain = engine.step(make_batch(Part([5]))).logits.copy()
    samples = np.zeros(1, SAMPLE_DTYPE)
    samples[0] = (5, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 40, 0, 0, 0, 0, 1, 0, 0)
    biases = np.array([(9, np.inf)], BIAS_DTYPE)
    result = engine.step(replace(make_batch(Part([5], flags=ROW_SAMPLE)), samples=samples, biases=biases))
    assert result.sampled.tolist() == [-1] and same_bits(result.logits, plain)


def test_rows_of_the_mtp_block(engine: NativeEngine) -> None:
    hidden = engine.step(make_batch(Part([5, 6, 7], flags=ROW_HIDDEN))).hidden.copy()
    draft = make_batch(Part([6, 7, 9], flags=ROW_SAMPLE | ROW_LOGITS, reset=False))
    batch = sampled(draft, np.random.default_rng(8))
    result = engine.mtp(batch, hidden)
    assert result.sampled.tolist() == expected_tokens(batch, result.logits)


def test_speculative_rows(engine: NativeEngine) -> None:
    """Each row of a draft is sampled by its own parameters."""
    engine.step(make_batch(Part([3, 4], flags=0)))
    draft = make_batch(Part([5, 6, 7, 8], start=2, n_spec=3, flags=ROW_SAMPLE | ROW_LOGITS))
    batch = sampled(draft, np.random.default_rng(12))
    result = engine.step(batch)
    assert result.sampled.tolist() == expected_tokens(batch, result.logits)


# ------------------------------------------------------------------------------------------- masks


def random_masks(rng: np.random.Generator, n: int, n_vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """uint32[n, words] masks that leave nearly everything, a few tokens or a single one, and bool[n, n_vocab]."""
    allowed = np.zeros((n, mask_words(n_vocab) * 32), bool)
    for i in range(n):
        allowed[i, :n_vocab] = rng.random(n_vocab) < rng.choice([0.999, 0.3, 0.002, 0.0])
        allowed[i, rng.integers(n_vocab)] = True
    words = np.packbits(allowed, axis=1, bitorder="little").view(np.uint32)
    return np.ascontiguousarray(words), allowed[:, :n_vocab]


def masked(batch: StepBatch, rng: np.random.Generator, n_vocab: int) -> tuple[StepBatch, np.ndarray]:
    """A sampled batch whose rows have masks, except every fifth, and what they allow: bool[samples, n_vocab]."""
    batch = sampled(batch, rng)
    masks, allowed = random_masks(rng, len(batch.samples), n_vocab)
    batch.samples["mask_begin"] = np.arange(len(batch.samples)) * masks.shape[1]
    batch.samples["mask_begin"][::5] = NO_MASK
    allowed[::5] = True
    return replace(batch, masks=masks.reshape(-1)), allowed


def tokens_of_banned_logits(batch: StepBatch, logits: np.ndarray, allowed: np.ndarray) -> list[int]:
    """What is chosen without masks when biases and penalties are added before, and banned logits are -inf."""
    tokens = []
    for i, row in enumerate(logits):
        sample = batch.samples[i : i + 1].copy()
        logit = row.copy()
        biases = batch.biases[sample["bias_begin"][0] :][: sample["n_biases"][0]]
        logit[biases["token"]] += biases["bias"]
        sample["n_biases"] = 0
        logit[~allowed[i]] = -np.inf
        tokens.append(sample_row(logit, sample, batch.counts, batch.biases))
    return tokens


def test_masked_rows(engine: NativeEngine) -> None:
    """A mask is as good as -inf for the others, whatever was added to them."""
    for seed in range(4):
        batch, allowed = masked(short_sequences(N_SLOTS), np.random.default_rng(seed), N_VOCAB)
        result = engine.step(batch)
        expected = tokens_of_banned_logits(batch, result.logits, allowed)
        assert result.sampled.tolist() == expected
        rows = [i for i, token in enumerate(expected) if token >= 0]
        assert len(rows) > N_SLOTS // 2 and all(allowed[i, expected[i]] for i in rows)


def test_a_mask_with_one_token_leaves_it(engine: NativeEngine) -> None:
    batch = make_batch(Part([5], flags=ROW_SAMPLE))
    samples = np.zeros(1, SAMPLE_DTYPE)
    samples[0] = (5, 0.9, 0.05, 0.0, 1.0, 0.0, 0.0, 40, 0, 0, 0, 0, 0, 0, 0)
    masks = np.zeros(mask_words(N_VOCAB), np.uint32)
    batch = replace(batch, samples=samples, masks=masks)
    for token in (0, 31, 32, N_VOCAB - 1):
        masks[:] = 0
        masks[token // 32] = np.uint32(1) << np.uint32(token % 32)
        assert engine.step(batch).sampled.tolist() == [token]
    masks[:] = 0
    assert engine.step(batch).sampled.tolist() == [-1]  # none is allowed


def test_a_row_without_a_mask_in_a_step_with_masks(engine: NativeEngine) -> None:
    batch = sampled(short_sequences(8), np.random.default_rng(1))
    expected = engine.step(batch).sampled.copy()
    batch.samples["mask_begin"] = NO_MASK
    zeros = np.zeros(mask_words(N_VOCAB), np.uint32)
    assert engine.step(replace(batch, masks=zeros)).sampled.tolist() == expected.tolist()
