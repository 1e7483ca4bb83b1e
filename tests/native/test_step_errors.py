"""Every field of the C structures out of range: an error that names it, no crash, and the engine works as before."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyjet.model.reader import Model
from pyjet.native import (
    ROW_ARGMAX,
    ROW_HIDDEN,
    ROW_LOGITS,
    ROW_SAMPLE,
    SEQ_RESET,
    EngineConfig,
    NativeEngine,
    NativeError,
    StepBatch,
    structs,
)
from pyjet.native.library import STATUS_NAMES, load_library
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, SAMPLE_DTYPE
from pyjet.native.step import STEP_MTP, address, step_input
from pyjet.native.tables import ModelTables
from tests.native.conftest import MakeModel
from tests.support.native_steps import ALL_OUTPUTS, Part, make_batch, same_bits

HUGE, LOWEST = (1 << 31) - 1, -(1 << 31)
CONFIG = EngineConfig(n_pages=6, n_state_slots=3, page_tokens=16, max_rows=24, max_seqs=2, max_spec=3, n_threads=2)


@pytest.fixture(scope="module")
def model(synthetic_model: MakeModel) -> Model:
    return synthetic_model("micro", "Q8_0")


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[NativeEngine]:
    with NativeEngine(model, CONFIG) as engine:
        yield engine


def good_batch() -> StepBatch:
    """Two sequences: rows 0-4 at 0-4 in slot 0, rows 5-6 at 20-21 in slot 1."""
    return make_batch(Part([1, 2, 3, 4, 5], slot=0, pages=[0], flags=ALL_OUTPUTS), Part([6, 7], 20, 1, [1, 2]))


@pytest.fixture(scope="module")
def healthy(engine: NativeEngine) -> Callable[[], None]:
    """A check that the engine computes what it computed before any error."""

    def run() -> np.ndarray:
        engine.state_reset(1)
        engine.pages_write([1], np.zeros((1, engine.page_bytes), np.uint8))
        return engine.step(good_batch()).logits.copy()

    first = run()

    def check() -> None:
        assert same_bits(run(), first)

    return check


# ------------------------------------------------------------------------------------------ steps
# (what is changed, where, value, what the message says)

ROW_CASES = [
    ("tokens", 0, -1, "row_token is -1"),
    ("tokens", 6, 320, "row_token is 320, allowed are 0..319"),
    ("tokens", 2, HUGE, "row_token"),
    ("positions", 0, -1, "row_position is -1"),
    ("positions", 5, 1024, "row_position is 1024, allowed are 0..1023"),
    ("positions", 3, LOWEST, "row_position"),
    ("positions", 2, 3, "row 2 is at position 3, its sequence continues at 2"),
    ("positions", 6, 20, "row 6 is at position 20"),
    ("row_seq", 0, -1, "row_seq is -1"),
    ("row_seq", 6, 2, "row_seq is 2, allowed are 0..1"),
    ("row_seq", 4, 1, "row 4 does not belong to sequence 0"),
    ("row_seq", 5, 0, "row 5 does not belong to sequence 1"),
    ("row_flags", 1, 8, "1 rows want a token sampled, pj_step_in.n_samples is 0"),
    ("row_flags", 1, 16, "row_flags"),
    ("row_flags", 1, 1 << 31, "row_flags"),
    ("page_table", 0, -1, "page_table is -1"),
    ("page_table", 1, 6, "page_table is 6, allowed are 0..5"),
    ("page_table", 2, HUGE, "page_table"),
    ("page_table", 2, 0, "page 0 is written twice"),
    ("page_table", 1, 0, "page 0 is written by sequence 0 and read by sequence 1"),
]
SEQ_CASES = [
    ("state_slot", 0, -1, "pj_seq.state_slot is -1"),
    ("state_slot", 1, 3, "pj_seq.state_slot is 3, allowed are 0..2"),
    ("state_slot", 1, 0, "state slot 0 is used by two sequences"),
    ("row_begin", 0, -1, "pj_seq.row_begin is -1"),
    ("row_begin", 1, 6, "pj_seq.row_begin is 6"),
    ("row_begin", 1, HUGE, "pj_seq.row_begin"),
    ("row_begin", 1, 4, "row 4 does not belong to sequence 1"),
    ("n_rows", 0, 0, "pj_seq.n_rows is 0"),
    ("n_rows", 0, -5, "pj_seq.n_rows is -5"),
    ("n_rows", 1, HUGE, "pj_seq.n_rows"),
    ("n_rows", 0, 4, "the sequences have 6 rows, the step has 7"),
    ("n_spec", 0, -1, "pj_seq.n_spec is -1"),
    ("n_spec", 0, 4, "pj_seq.n_spec is 4, allowed are 0..3"),
    ("n_spec", 1, 3, "pj_seq.n_spec is 3, allowed are 0..2"),
    ("n_accept", 1, 1, "pj_seq.n_accept is 1, allowed are 0..0"),
    ("n_accept", 1, -1, "pj_seq.n_accept is -1"),
    ("n_accept", 0, HUGE, "pj_seq.n_accept"),
    ("page_begin", 0, -1, "pj_seq.page_begin is -1"),
    ("page_begin", 1, 2, "pj_seq.page_begin is 2"),
    ("page_begin", 1, HUGE, "pj_seq.page_begin"),
    ("n_pages", 1, 0, "pj_seq.n_pages is 0"),
    ("n_pages", 1, LOWEST, "pj_seq.n_pages"),
    ("n_pages", 0, 4, "pj_seq.n_pages is 4, allowed are 1..3"),
    ("n_pages", 1, 1, "sequence 1 reaches position 21, its 1 pages hold 16 tokens"),
    ("flags", 0, 2, "pj_seq.flags has unknown bits"),
    ("flags", 1, SEQ_RESET, "sequence 1 resets its state at position 20, not 0"),
]


@pytest.mark.parametrize("name, index, value, message", ROW_CASES)
def test_row_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, index: int, value: int, message: str
) -> None:
    batch = good_batch()
    getattr(batch, name)[index] = value
    with pytest.raises(NativeError) as caught:
        engine.step(batch)
    assert caught.value.kind == "argument" and message in caught.value.message
    healthy()


@pytest.mark.parametrize("name, index, value, message", SEQ_CASES)
def test_seq_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, index: int, value: int, message: str
) -> None:
    batch = good_batch()
    batch.seqs[name][index] = value
    with pytest.raises(NativeError) as caught:
        engine.step(batch)
    assert caught.value.kind == "argument" and message in caught.value.message
    healthy()


def raw_step(engine: NativeEngine, change_in: dict[str, Any], change_out: dict[str, Any]) -> tuple[str, str]:
    """pj_step with fields of the C structures overwritten; returns the status' name and the message."""
    batch = good_batch()
    c_in = step_input(batch, 0, None, engine.n_embd)
    logits, hidden = np.empty((5 + 2, engine.n_vocab), np.float32), np.empty((5, engine.n_embd), np.float32)
    argmax = np.empty(7, np.int32)
    c_out = structs.StepOut(logits.ctypes.data, hidden.ctypes.data, argmax.ctypes.data, 7, 5, 0.0)
    for structure, changes in ((c_in, change_in), (c_out, change_out)):
        for name, value in changes.items():
            setattr(structure, name, value)
    lib = load_library()
    status = lib.pj_step(engine._handle, C.byref(c_in), C.byref(c_out))
    return STATUS_NAMES[status], lib.pj_last_error().decode()


IN_CASES = [
    ("kind", -1, "pj_step_in.kind is -1"),
    ("kind", 2, "pj_step_in.kind is 2"),
    ("kind", STEP_MTP, "row_hidden belongs to MTP steps"),
    ("n_rows", 0, "pj_step_in.n_rows is 0"),
    ("n_rows", 25, "pj_step_in.n_rows is 25, allowed are 1..24"),
    ("n_rows", LOWEST, "pj_step_in.n_rows"),
    ("n_seqs", 0, "pj_step_in.n_seqs is 0"),
    ("n_seqs", 3, "pj_step_in.n_seqs is 3, allowed are 1..2"),
    ("n_seqs", 1, "row_seq is 1, allowed are 0..0"),
    ("n_page_entries", 0, "pj_step_in.n_page_entries is 0"),
    ("n_page_entries", -1, "pj_step_in.n_page_entries is -1"),
    ("n_page_entries", HUGE, "pj_step_in.n_page_entries"),
    ("row_token", None, "row_token is NULL"),
    ("row_position", None, "row_position is NULL"),
    ("row_seq", None, "row_seq is NULL"),
    ("row_flags", None, "row_flags is NULL"),
    ("seqs", None, "seqs is NULL"),
    ("page_table", None, "page_table is NULL"),
    ("row_hidden", 4096, "row_hidden belongs to MTP steps"),
]
OUT_CASES = [
    ("logits", None, "7 rows want logits, pj_step_out holds 0"),
    ("logits_rows", 6, "7 rows want logits, pj_step_out holds 6"),
    ("logits_rows", LOWEST, "7 rows want logits"),
    ("hidden", None, "5 rows want hidden rows, pj_step_out holds 0"),
    ("hidden_rows", 4, "5 rows want hidden rows, pj_step_out holds 4"),
    ("argmax", None, "5 rows want argmax, pj_step_out.argmax is NULL"),
]


@pytest.mark.parametrize("name, value, message", IN_CASES)
def test_step_in_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, value: Any, message: str
) -> None:
    status, text = raw_step(engine, {name: value}, {})
    assert status == "argument" and message in text
    healthy()


@pytest.mark.parametrize("name, value, message", OUT_CASES)
def test_step_out_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, value: Any, message: str
) -> None:
    status, text = raw_step(engine, {}, {name: value})
    assert status == "argument" and message in text
    healthy()


def test_an_unchanged_raw_step_works(engine: NativeEngine) -> None:
    assert raw_step(engine, {}, {}) == ("ok", "")


def test_a_refused_step_changes_nothing(engine: NativeEngine) -> None:
    """Even when only the last sequence is wrong, the others' states and pages stay as they were."""
    engine.step(good_batch())
    before = engine.state_read(0), engine.pages_read(range(6))
    batch = good_batch()
    batch.seqs["n_accept"][1] = 1
    with pytest.raises(NativeError):
        engine.step(batch)
    assert same_bits(engine.state_read(0), before[0]) and same_bits(engine.pages_read(range(6)), before[1])


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda lib, e: lib.pj_step(None, None, None), "engine is NULL"),
        (lambda lib, e: lib.pj_step(e, None, None), "in is NULL"),
        (lambda lib, e: lib.pj_step(e, C.byref(structs.StepIn()), None), "out is NULL"),
        (lambda lib, e: lib.pj_engine_create(None, None, None), "engine is NULL"),
        (lambda lib, e: lib.pj_engine_create(None, None, C.byref(C.c_void_p())), "model is NULL"),
        (lambda lib, e: lib.pj_state_read(e, 0, None, 0), "host is NULL"),
        (lambda lib, e: lib.pj_state_write(e, 0, None, 0), "host is NULL"),
        (lambda lib, e: lib.pj_state_read(e, 0, 4096, 7), "the buffer has 7 bytes, needed are"),
        (lambda lib, e: lib.pj_pages_read(e, None, 1, 4096, 1), "pages is NULL"),
        (lambda lib, e: lib.pj_pages_copy(e, None, None, -1), "the number of pages is -1"),
        (lambda lib, e: lib.pj_pages_read(e, np.zeros(1, np.int32).ctypes.data, 1, 4096, 7), "the buffer has 7 bytes"),
        (lambda lib, e: lib.pj_state_commit(None, 0, 0), "engine is NULL"),
        (lambda lib, e: lib.pj_engine_info(e, None), "info is NULL"),
    ],
)
def test_missing_pointers_and_wrong_sizes(engine: NativeEngine, call: Callable[..., int], name: str) -> None:
    lib = load_library()
    assert STATUS_NAMES[call(lib, engine._handle)] == "argument"
    assert name in lib.pj_last_error().decode()
    assert (lib.pj_state_bytes(None), lib.pj_page_bytes(None)) == (0, 0)
    lib.pj_engine_destroy(None)


# ---------------------------------------------------------------------------------------- samples
# Rows 4 and 6 are sampled, the latter with two penalised tokens and a bias.

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


# --------------------------------------------------------------------------------------- creation


def create(model: Model, model_changes: dict[str, Any], config_changes: dict[str, Any]) -> tuple[str, str]:
    """pj_engine_create with fields overwritten; returns the status' name and the message."""
    lib, tables, c_config, handle = load_library(), ModelTables(model), CONFIG.to_c(), C.c_void_p(1)
    for structure, changes in ((tables.c_model, model_changes), (c_config, config_changes)):
        for name, value in changes.items():
            setattr(structure, name, value)
    status = lib.pj_engine_create(C.byref(tables.c_model), C.byref(c_config), C.byref(handle))
    text = lib.pj_last_error().decode()
    assert (handle.value is None) == (status != 0)
    lib.pj_engine_destroy(handle)
    return STATUS_NAMES[status], text


CONFIG_CASES = [
    ("abi_version", 0, "argument", "pj_config.abi_version is 0"),
    ("device", 2, "argument", "pj_config.device is 2"),
    ("device", -1, "argument", "pj_config.device is -1"),
    ("isa", 4, "argument", "4"),
    ("isa", -1, "argument", "-1"),
    ("page_tokens", 0, "argument", "pj_config.page_tokens is 0"),
    ("page_tokens", 24, "argument", "pj_config.page_tokens is 24, not a multiple of 16"),
    ("page_tokens", 1040, "argument", "pj_config.page_tokens is 1040"),
    ("n_pages", 0, "argument", "pj_config.n_pages is 0"),
    ("n_pages", HUGE, "argument", "pj_config.n_pages"),
    ("n_state_slots", 0, "argument", "pj_config.n_state_slots is 0"),
    ("n_state_slots", LOWEST, "argument", "pj_config.n_state_slots"),
    ("max_rows", 0, "argument", "pj_config.max_rows is 0"),
    ("max_rows", HUGE, "argument", "pj_config.max_rows"),
    ("max_seqs", 0, "argument", "pj_config.max_seqs is 0"),
    ("max_seqs", 4097, "argument", "pj_config.max_seqs is 4097"),
    ("max_spec", -1, "argument", "pj_config.max_spec is -1"),
    ("max_spec", 16, "argument", "pj_config.max_spec is 16, allowed are 0..15"),
    ("kv_type_k", 2, "argument", "pj_config.kv_type_k is 2"),
    ("kv_type_v", -1, "argument", "pj_config.kv_type_v is -1"),
]
MODEL_CASES = [
    ("abi_version", 99, "argument", "pj_model.abi_version is 99"),
    ("arch", 2, "model", "architecture number 2"),
    ("n_block", 0, "model", "n_block"),
    ("n_block", HUGE, "model", "n_block"),
    ("n_nextn", 2, "model", "n_nextn"),
    ("n_nextn", -1, "model", "n_nextn"),
    ("n_embd", 0, "model", "n_embd"),
    ("n_embd", 24, "model", "n_embd"),
    ("n_embd", HUGE, "model", "n_embd"),
    ("n_embd", 272, "model", "tensor token_embd.weight has the shape [256, 320, 1, 1], the model needs [272, 320]"),
    ("n_ff", -16, "model", "n_ff"),
    ("n_ff", 288, "model", "tensor blk.0.ffn_gate.weight has the shape"),
    ("n_head", 0, "model", "n_head"),
    ("n_head", 6, "model", "tensor blk.1.attn_q.weight has the shape"),
    ("n_head_kv", 0, "model", "n_head_kv"),
    ("n_head_kv", 3, "model", "n_head_kv"),
    ("n_head_kv", 4, "model", "tensor blk.1.attn_k.weight has the shape"),
    ("head_dim", 40, "model", "head_dim"),
    ("head_dim", 2048, "model", "head_dim"),
    ("rope_dim", 0, "model", "rope_dim"),
    ("rope_dim", 15, "model", "rope_dim"),
    ("rope_dim", 66, "model", "rope_dim"),
    ("n_gdn_head_v", 0, "model", "n_gdn_head_v"),
    ("n_gdn_head_v", 6, "model", "tensor blk.0.attn_qkv.weight has the shape"),
    ("n_gdn_head_k", 3, "model", "n_gdn_head_k"),
    ("n_gdn_head_k", -2, "model", "n_gdn_head_k"),
    ("gdn_dim", 8, "model", "gdn_dim"),
    ("conv_kernel", 1, "model", "conv_kernel"),
    ("conv_kernel", 17, "model", "conv_kernel"),
    ("conv_kernel", 3, "model", "tensor blk.0.ssm_conv1d.weight has the shape"),
    ("n_vocab", 0, "model", "n_vocab"),
    ("n_vocab", 319, "model", "tensor token_embd.weight has the shape"),
    ("n_ctx_train", 0, "model", "n_ctx_train"),
    ("rope_base", 0.0, "model", "rope_base"),
    ("rope_base", float("nan"), "model", "rope_base"),
    ("rms_eps", -1.0, "model", "rms_eps"),
    ("rms_eps", float("nan"), "model", "rms_eps"),
    ("block_is_attention", None, "argument", "pj_model.block_is_attention is NULL"),
    ("tensors", None, "argument", "pj_model.tensors is NULL"),
    ("n_tensors", -1, "argument", "pj_model.tensors"),
    ("n_tensors", 0, "model", "tensor token_embd.weight is missing"),
]


@pytest.mark.parametrize("name, value, status, message", CONFIG_CASES)
def test_config_fields(model: Model, name: str, value: Any, status: str, message: str) -> None:
    found, text = create(model, {}, {name: value})
    assert found == status and message in text


@pytest.mark.parametrize("name, value, status, message", MODEL_CASES)
def test_model_fields(model: Model, name: str, value: Any, status: str, message: str) -> None:
    found, text = create(model, {name: value}, {})
    assert found == status and message in text


def test_unchanged_structures_work(model: Model) -> None:
    assert create(model, {}, {}) == ("ok", "")


TENSOR_NAMES = [
    *("token_embd.weight", "output_norm.weight", "blk.0.attn_qkv.weight", "blk.0.attn_gate.weight", "blk.0.ssm_a"),
    *("blk.0.ssm_dt.bias", "blk.0.ssm_conv1d.weight", "blk.0.ssm_norm.weight", "blk.0.ssm_alpha.weight"),
    *("blk.0.ssm_beta.weight", "blk.0.ssm_out.weight", "blk.0.attn_norm.weight", "blk.0.ffn_up.weight"),
    *("blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight"),
    *("blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight", "blk.1.post_attention_norm.weight"),
    *("blk.1.ffn_gate.weight", "blk.1.ffn_down.weight", "blk.2.attn_q.weight", "blk.2.nextn.eh_proj.weight"),
    *("blk.2.nextn.enorm.weight", "blk.2.nextn.hnorm.weight"),
]


@pytest.mark.parametrize("name", TENSOR_NAMES)
def test_missing_and_wrong_tensors_are_named(model: Model, name: str) -> None:
    tensor = model.tensors[name]
    shorter = tensor.data[: tensor.n_bytes - 2]
    cases = [
        (None, "is missing"),
        (replace(tensor, shape=(tensor.shape[0] + 32, *tensor.shape[1:])), "has the shape"),
        (replace(tensor, shape=(*tensor.shape, *[1] * (3 - len(tensor.shape)), 2)), "has the shape"),
        (replace(tensor, type=99), "has ggml type 99; supported are F32"),
        (replace(tensor, n_bytes=tensor.n_bytes - 2, data=shorter), f"has {tensor.n_bytes - 2} bytes"),
    ]
    for changed, message in cases:
        tensors = {key: value for key, value in model.tensors.items() if key != name}
        if changed is not None:
            tensors[name] = changed
        with pytest.raises(NativeError) as caught:
            NativeEngine(replace(model, tensors=tensors), CONFIG)
        assert caught.value.kind == "model"
        assert f"tensor {name}" in caught.value.message and message in caught.value.message


def test_rows_that_do_not_fit_the_blocks_of_a_type(model: Model) -> None:
    """The convolution has rows of 4 values; Q8_0 has blocks of 32."""
    name = "blk.0.ssm_conv1d.weight"
    tensors = {**model.tensors, name: replace(model.tensors[name], type=8)}
    with pytest.raises(NativeError, match=f"tensor {name}: rows of 4 elements do not fit Q8_0 blocks of 32"):
        NativeEngine(replace(model, tensors=tensors), CONFIG)


def test_progress_counts_up_and_cancels_anywhere(model: Model) -> None:
    calls: list[tuple[str, int, int]] = []
    NativeEngine(model, CONFIG, lambda *call: calls.append(call)).close()
    done, totals = [call[1] for call in calls], {call[2] for call in calls}
    assert done == sorted(done) and len(totals) == 1 and done[-1] == max(totals) and all(call[0] for call in calls)
    for stop in (0, len(calls) // 2, len(calls) - 1):
        seen = iter(range(len(calls)))
        with pytest.raises(NativeError) as caught:
            NativeEngine(model, CONFIG, lambda *_, seen=seen, stop=stop: next(seen) != stop)
        assert caught.value.kind == "cancelled" and caught.value.message
    with NativeEngine(model, CONFIG) as engine:
        engine.step(good_batch())


def test_a_model_without_mtp_block_has_no_mtp_step(model: Model) -> None:
    without = replace(model, hyperparams=replace(model.hyperparams, n_nextn=0))
    with NativeEngine(without, CONFIG) as engine, pytest.raises(NativeError, match="no MTP block"):
        engine.mtp(make_batch(Part([1], reset=False)), np.zeros((1, engine.n_embd), np.float32))


def test_flags_have_the_documented_values() -> None:
    assert (ROW_LOGITS, ROW_ARGMAX, ROW_HIDDEN, SEQ_RESET) == (1, 2, 4, 1)
    with pytest.raises(NativeError, match="x must be"):
        address("x", np.zeros(2, np.float32), np.dtype(np.int32), (2,))
