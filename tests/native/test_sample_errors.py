"""Samplers of a step with every field out of range. Rows 4 and 6 are sampled, the latter with penalties and a bias."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyjet.native import ROW_SAMPLE, NativeEngine, NativeError, StepBatch
from pyjet.native.library import STATUS_NAMES, load_library
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, SAMPLE_DTYPE, mask_words
from pyjet.native.step import step_input
from tests.native.checked_step import HUGE, LOWEST, good_batch
from tests.support.native_steps import Part, make_batch

SAMPLE_CASES = [
    ("top_p", 1, np.nan, "pj_sample.top_p of sample 1 is nan, allowed are numbers"),
    ("min_p", 0, np.nan, "pj_sample.min_p"),
    ("temperature", 1, np.inf, "pj_sample.temperature of sample 1 is inf, allowed are finite numbers"),
    ("temperature", 1, np.nan, "pj_sample.temperature"),
    ("repeat_penalty", 1, np.inf, "pj_sample.repeat_penalty"),
    ("frequency_penalty", 0, np.nan, "pj_sample.frequency_penalty"),
    ("presence_penalty", 0, -np.inf, "pj_sample.presence_penalty"),
    ("min_keep", 0, -1, "pj_sample.min_keep of sample 0 is -1, allowed are 0 and above"),
    ("index", 1, -1, "pj_sample.index of sample 1 is -1, allowed are 0 and above"),
    ("n_counts", 1, -1, "sample 1 has -1 counts, allowed are 0..1024"),
    ("n_counts", 1, 1025, "sample 1 has 1025 counts"),
    ("n_counts", 1, 3, "sample 1 takes counts 0..2, the step has 2"),
    ("count_begin", 1, -1, "sample 1 takes counts -1..0, the step has 2"),
    ("count_begin", 1, HUGE, "sample 1 takes counts"),
    ("n_biases", 1, 2, "sample 1 takes biases 0..1, the step has 1"),
    ("bias_begin", 0, 2, "sample 0 takes biases 2..1, the step has 1"),
]
ENTRY_CASES = [
    ("counts", 0, (-1, 1), "counts of sample 1 name token -1, allowed are 0..319"),
    ("counts", 1, (320, 1), "counts of sample 1 name token 320"),
    ("counts", 0, (9, 1), "counts of sample 1 name token 9 after 9, not in ascending order"),
    ("counts", 1, (3, 1), "counts of sample 1 name token 3 after 5"),
    ("counts", 0, (5, 0), "the count of token 5 of sample 1 is 0, not 1 or more"),
    ("biases", 0, (-1, 1.0), "biases of sample 1 name token -1"),
    ("biases", 0, (4, np.nan), "the bias of token 4 of sample 1 is not a number"),
]


def sampled_batch() -> StepBatch:
    batch = good_batch()
    batch.row_flags[[4, 6]] |= ROW_SAMPLE
    samples = np.zeros(2, SAMPLE_DTYPE)
    samples["repeat_penalty"] = samples["temperature"] = 1.0
    samples["n_counts"][1], samples["n_biases"][1] = 2, 1
    counts, biases = np.array([(5, 1), (9, 2)], COUNT_DTYPE), np.array([(4, -np.inf)], BIAS_DTYPE)
    return replace(batch, samples=samples, counts=counts, biases=biases)


@pytest.mark.parametrize("name, index, value, message", SAMPLE_CASES)
def test_sample_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, index: int, value: float, message: str
) -> None:
    batch = sampled_batch()
    batch.samples[name][index] = value
    with pytest.raises(NativeError) as caught:
        engine.step(batch)
    assert caught.value.kind == "argument" and message in caught.value.message
    healthy()


@pytest.mark.parametrize("name, index, value, message", ENTRY_CASES)
def test_entries_of_samples(
    engine: NativeEngine, healthy: Callable[[], None], name: str, index: int, value: Any, message: str
) -> None:
    batch = sampled_batch()
    getattr(batch, name)[index] = value
    with pytest.raises(NativeError) as caught:
        engine.step(batch)
    assert caught.value.kind == "argument" and message in caught.value.message
    healthy()


@pytest.mark.parametrize("begin", [-2, 1, 11, HUGE])
def test_masks_of_samples(engine: NativeEngine, healthy: Callable[[], None], begin: int) -> None:
    batch = replace(sampled_batch(), masks=np.full(mask_words(engine.n_vocab), 0xFFFFFFFF, np.uint32))
    batch.samples["mask_begin"][1] = begin
    with pytest.raises(NativeError, match=f"the mask of sample 1 has 10 words from word {begin} on, the step has 10"):
        engine.step(batch)
    batch.samples["mask_begin"][1] = 0
    engine.step(batch)
    healthy()


def test_samples_and_flagged_rows_are_as_many(engine: NativeEngine, healthy: Callable[[], None]) -> None:
    batch = sampled_batch()
    engine.step(batch)
    for bad, message in [
        (replace(batch, samples=batch.samples[:1]), "2 rows want a token sampled, pj_step_in.n_samples is 1"),
        (replace(batch, samples=np.repeat(batch.samples, 2)), "n_samples is 4"),
        (replace(batch, counts=batch.counts[:1]), "sample 1 takes counts 0..1, the step has 1"),
    ]:
        with pytest.raises(NativeError, match=message):
            engine.step(bad)
    every_row = replace(batch, samples=np.repeat(batch.samples[:1], 7))
    every_row.row_flags[:] |= ROW_SAMPLE
    engine.step(every_row)  # 2 sequences, 3 speculative rows: 8 at most
    healthy()


def test_only_speculative_rows_and_the_last_one_are_sampled(engine: NativeEngine, healthy: Callable[[], None]) -> None:
    batch = make_batch(Part([1] * 9, pages=[0], flags=ROW_SAMPLE))
    samples = np.repeat(sampled_batch().samples[:1], 9)
    with pytest.raises(NativeError, match=r"9 rows want .* allowed are max_seqs \* \(max_spec \+ 1\) = 8"):
        engine.step(replace(batch, samples=samples))
    healthy()


SAMPLE_POINTER_CASES = [
    ("samples", None, "pj_step_in.samples is NULL"),
    ("counts", None, "pj_step_in.counts is NULL, n_counts is 2"),
    ("n_counts", -1, "pj_step_in.counts is set, n_counts is -1"),
    ("biases", None, "pj_step_in.biases is NULL, n_biases is 1"),
    ("n_biases", LOWEST, "pj_step_in.biases is set"),
    ("sampled", None, "2 rows want a token sampled, pj_step_out.sampled is NULL"),
]


@pytest.mark.parametrize("name, value, message", SAMPLE_POINTER_CASES)
def test_pointers_of_samples(
    engine: NativeEngine, healthy: Callable[[], None], name: str, value: Any, message: str
) -> None:
    batch = sampled_batch()
    c_in = step_input(batch, 0, None, engine.n_embd)
    c_out, _ = engine._outputs.prepare(batch)
    setattr(c_out if name == "sampled" else c_in, name, value)
    lib = load_library()
    assert STATUS_NAMES[lib.pj_step(engine._handle, C.byref(c_in), C.byref(c_out))] == "argument"
    assert message in lib.pj_last_error().decode()
    healthy()
