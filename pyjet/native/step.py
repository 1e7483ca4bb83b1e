"""One step's input and output as numpy arrays, checked before their addresses leave Python."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pyjet.native import structs
from pyjet.native.config import ERR_ARGUMENT
from pyjet.native.library import NativeError
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, SAMPLE_DTYPE, no_biases, no_counts, no_masks, no_samples

ROW_LOGITS, ROW_ARGMAX, ROW_HIDDEN, ROW_SAMPLE = 1, 2, 4, 8
SEQ_RESET = 1
STEP_TRUNK, STEP_MTP = 0, 1
MAX_KINDS = 64  # of batches whose results have a place prepared

Int32Array = npt.NDArray[np.int32]
UInt32Array = npt.NDArray[np.uint32]
Float32Array = npt.NDArray[np.float32]
AllocateRows = Callable[[int, int], Float32Array]  # rows, width

# pj_seq as a numpy record; every field is 4 bytes.
SEQ_DTYPE = np.dtype(
    [
        ("state_slot", np.int32),
        ("row_begin", np.int32),
        ("n_rows", np.int32),
        ("n_spec", np.int32),
        ("n_accept", np.int32),
        ("page_begin", np.int32),
        ("n_pages", np.int32),
        ("flags", np.uint32),
        ("n_verify", np.int32),
        ("n_draft", np.int32),
        ("draft_sample", np.int32),
        ("reserved", np.int32),
    ]
)
NO_DRAFTS = (0, 0, -1, 0)  # the last four fields of who neither verifies nor wants drafts
_INT32, _UINT32, _FLOAT32 = np.dtype(np.int32), np.dtype(np.uint32), np.dtype(np.float32)


def no_blocks() -> Int32Array:
    return np.empty(0, np.int32)


def no_drafts() -> Int32Array:
    return np.empty((0, structs.MAX_DRAFT), np.int32)


def no_draft_probs() -> Float32Array:
    return np.empty((0, structs.MAX_DRAFT), np.float32)


@dataclass(frozen=True, eq=False)
class StepBatch:
    """Rows of one step; field meanings and limits are those of pj_step_in and pj_seq.

    The arrays' contents may change between two steps, so that the same batch can carry the next one.
    """

    tokens: Int32Array  # [R]
    positions: Int32Array  # [R] absolute
    row_seq: Int32Array  # [R] index into seqs
    row_flags: UInt32Array  # [R] ROW_*
    seqs: npt.NDArray[Any]  # [S] SEQ_DTYPE
    page_table: Int32Array  # [P] page ids
    samples: npt.NDArray[Any] = field(default_factory=no_samples)  # SAMPLE_DTYPE, of the rows flagged ROW_SAMPLE
    counts: npt.NDArray[Any] = field(default_factory=no_counts)  # COUNT_DTYPE, ranges of the samples
    biases: npt.NDArray[Any] = field(default_factory=no_biases)  # BIAS_DTYPE, likewise
    row_next: Int32Array | None = None  # [R] token after each row, -1: the chosen one; None: no drafts, no KV for them
    draft_blocks: Int32Array = field(default_factory=no_blocks)  # [B] of the draft head, besides the lowest ids
    masks: UInt32Array = field(default_factory=no_masks)  # [W] words of the samples' masks
    fill_masks: Callable[[], None] | None = None  # completes masks once the device computes; None: they are complete

    @cached_property
    def c_trunk(self) -> structs.StepIn:
        """pj_step_in of a trunk step, checked once. It holds addresses of the arrays, which live as long as it does."""
        return step_input(self, STEP_TRUNK, None, 0)


@dataclass
class StepResult:
    """Rows in the order of the batch. The arrays are the engine's and hold only until its next step."""

    logits: Float32Array  # [rows flagged ROW_LOGITS or ROW_SAMPLE, n_vocab]; of the latter alone where sampled is -1
    hidden: Float32Array  # [rows flagged ROW_HIDDEN, n_embd]
    argmax: Int32Array  # [R], -1 where not flagged
    sampled: Int32Array  # [R], -1 where not flagged or not settled
    step_us: float
    drafts: Int32Array = field(
        default_factory=no_drafts
    )  # [S, MAX_DRAFT], -1 where there is none; S = 0: no MTP
    draft_probs: Float32Array = field(default_factory=no_draft_probs)  # likewise: the MTP block's own probabilities


def address(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Address of an array's data; NativeError when dtype, shape or layout is not the ABI's."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise NativeError(
            ERR_ARGUMENT,
            f"{name} must be a contiguous {dtype} array of shape {shape}, not {array.dtype} of {array.shape}",
        )
    return data_address(array)


def data_address(array: npt.NDArray[Any]) -> int:
    """Of a contiguous array; 0 when it is empty. numpy's own ``ctypes`` takes ten times as long."""
    if not array.size:
        return 0
    if not array.flags.writeable:
        return int(array.ctypes.data)
    return C.addressof(C.c_char.from_buffer(array.view(np.uint8).data))


def step_input(batch: StepBatch, kind: int, hidden: Float32Array | None, n_embd: int) -> structs.StepIn:
    """pj_step_in for a batch. The batch must outlive the call that uses it."""
    rows = (batch.tokens.shape[0],)
    return structs.StepIn(
        kind,
        rows[0],
        batch.seqs.shape[0],
        batch.page_table.shape[0],
        address("tokens", batch.tokens, _INT32, rows),
        address("positions", batch.positions, _INT32, rows),
        address("row_seq", batch.row_seq, _INT32, rows),
        address("row_flags", batch.row_flags, _UINT32, rows),
        None if hidden is None else address("hidden", hidden, _FLOAT32, (rows[0], n_embd)),
        address("seqs", batch.seqs, SEQ_DTYPE, batch.seqs.shape[:1]),
        address("page_table", batch.page_table, _INT32, batch.page_table.shape[:1]),
        address("samples", batch.samples, SAMPLE_DTYPE, batch.samples.shape[:1]),
        address("counts", batch.counts, COUNT_DTYPE, batch.counts.shape[:1]),
        address("biases", batch.biases, BIAS_DTYPE, batch.biases.shape[:1]),
        batch.samples.shape[0],
        batch.counts.shape[0],
        batch.biases.shape[0],
        batch.draft_blocks.shape[0],
        None if batch.row_next is None else address("row_next", batch.row_next, _INT32, rows),
        address("draft_blocks", batch.draft_blocks, _INT32, batch.draft_blocks.shape[:1]),
        address("masks", batch.masks, _UINT32, batch.masks.shape[:1]),
        batch.masks.shape[0],
        int(batch.fill_masks is not None),
    )


class OutputBuffers:
    """Room for one step's results, kept between steps because fresh megabytes cost page faults each time."""

    def __init__(
        self, n_vocab: int, n_embd: int, max_rows: int, max_seqs: int, n_logit_rows: int, allocate: AllocateRows
    ) -> None:
        self._allocate = allocate
        self._batch: StepBatch | None = None  # of the last step
        self._prepared: tuple[structs.StepOut, StepResult]
        self._by_sizes: dict[tuple[int, int, int, int], tuple[structs.StepOut, StepResult]] = {}
        self._logits = allocate(n_logit_rows, n_vocab)
        self._hidden = allocate(1, n_embd)
        self._argmax: Int32Array = np.full(max_rows, -1, np.int32)
        self._argmax_address = data_address(self._argmax)
        self._sampled: Int32Array = np.full(max_rows, -1, np.int32)
        self._sampled_address = data_address(self._sampled)
        self._drafts: Int32Array = np.full((max_seqs, structs.MAX_DRAFT), -1, np.int32)
        self._drafts_address = data_address(self._drafts)
        self._draft_probs: Float32Array = np.zeros((max_seqs, structs.MAX_DRAFT), np.float32)
        self._draft_probs_address = data_address(self._draft_probs)

    def prepare(self, batch: StepBatch) -> tuple[structs.StepOut, StepResult]:
        """The C structure and the views of it that the caller will read; the same ones for the same batch."""
        if batch is not self._batch:
            self._prepared = self._prepare(batch)
            self._batch = batch
        return self._prepared

    def _prepare(self, batch: StepBatch) -> tuple[structs.StepOut, StepResult]:
        row_flags = batch.row_flags
        n_logits = int(np.count_nonzero(row_flags & (ROW_LOGITS | ROW_SAMPLE)))
        n_hidden = int(np.count_nonzero(row_flags & ROW_HIDDEN))
        n_drafting = 0 if batch.row_next is None else batch.seqs.shape[0]
        sizes = row_flags.shape[0], n_logits, n_hidden, n_drafting
        if (known := self._by_sizes.get(sizes)) is not None:
            return known
        if len(self._by_sizes) >= MAX_KINDS:
            self._by_sizes.clear()
        self._by_sizes[sizes] = prepared = self._prepare_sizes(*sizes)
        return prepared

    def _prepare_sizes(
        self, n_rows: int, n_logits: int, n_hidden: int, n_drafting: int
    ) -> tuple[structs.StepOut, StepResult]:
        self._logits = self._at_least(self._logits, n_logits)
        self._hidden = self._at_least(self._hidden, n_hidden)
        if n_rows > self._argmax.shape[0]:
            raise NativeError(ERR_ARGUMENT, f"a step of {n_rows} rows is larger than max_rows {self._argmax.shape[0]}")
        rows = self._logits[:n_logits], self._hidden[:n_hidden], self._argmax[:n_rows], self._sampled[:n_rows]
        if n_drafting > self._drafts.shape[0]:
            raise NativeError(ERR_ARGUMENT, f"a step of {n_drafting} sequences is larger than {self._drafts.shape[0]}")
        result = StepResult(*rows, 0.0, self._drafts[:n_drafting], self._draft_probs[:n_drafting])
        out = structs.StepOut(
            data_address(self._logits) if n_logits else None,
            data_address(self._hidden) if n_hidden else None,
            self._argmax_address,
            n_logits,
            n_hidden,
            0.0,
            self._sampled_address,
            self._drafts_address,
            self._draft_probs_address,
        )
        return out, result

    def _at_least(self, buffer: Float32Array, n_rows: int) -> Float32Array:
        if n_rows <= buffer.shape[0]:
            return buffer
        self._by_sizes.clear()  # they have the address of what is given up now
        return self._allocate(n_rows, buffer.shape[1])
