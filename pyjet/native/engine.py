"""One engine of libpyjet: create it from a model, run steps, copy pages and states."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyjet.native import structs
from pyjet.native.config import DEVICES, ERR_ARGUMENT, ISAS, EngineConfig, number_of
from pyjet.native.host_memory import UInt8Array, host_bytes, host_rows
from pyjet.native.library import NativeError, check_status, load_library
from pyjet.native.step import (
    STEP_MTP,
    STEP_TRUNK,
    Float32Array,
    Int32Array,
    OutputBuffers,
    StepBatch,
    StepResult,
    address,
    step_input,
)
from pyjet.native.tables import ModelTables

if TYPE_CHECKING:
    from pyjet.model.reader import Model

ProgressCallback = Callable[[str, int, int], "bool | None"]
_UINT8, _INT32 = np.dtype(np.uint8), np.dtype(np.int32)


@dataclass(frozen=True)
class EngineInfo:
    """Memory in bytes and what the engine runs on."""

    weight_bytes: int
    kv_bytes: int
    state_bytes: int
    workspace_bytes: int
    device: str
    device_name: str
    isa: str
    n_threads: int


@dataclass(frozen=True)
class OpTime:
    """Time of one kind of op since creation, from an engine made with ``profile=True``."""

    name: str
    total_us: float
    calls: int


class NativeEngine:
    """A pj_engine. One thread at a time; the GIL is free while a call runs. Every failure is a NativeError.

    ``progress(stage, done, total)`` is called while weights are packed (bytes); returning False stops the load
    with a NativeError of kind "cancelled", an exception in it stops the load and comes out of the constructor.
    """

    def __init__(self, model: Model, config: EngineConfig, progress: ProgressCallback | None = None) -> None:
        self._handle = C.c_void_p()
        self._lib = load_library()
        self._tables = ModelTables(model)
        self.config = config
        self.n_vocab = model.hyperparams.n_vocab
        self.n_embd = model.hyperparams.n_embd
        self._create(config, progress)
        self._device = number_of("device", config.device, DEVICES)
        allocate = partial(host_rows, self._lib, self._device)
        self._outputs = OutputBuffers(
            self.n_vocab, self.n_embd, config.max_rows, config.n_seqs, config.n_seqs, allocate
        )
        self.state_bytes = int(self._lib.pj_state_bytes(self._handle))
        self.page_bytes = int(self._lib.pj_page_bytes(self._handle))

    @property
    def copies_beside_steps(self) -> bool:
        """Whether a device copies states while it computes; a CPU does one after the other."""
        return self.config.device != "cpu"

    def _create(self, config: EngineConfig, progress: ProgressCallback | None) -> None:
        raised: list[BaseException] = []

        def report(_user: object, stage: bytes, done: int, total: int) -> int:
            # An exception must not cross the C frames: it stops the load here and is raised again below.
            try:
                return int(progress is not None and progress(stage.decode(), done, total) is False)
            except BaseException as error:
                raised.append(error)
                return 1

        c_config = config.to_c()
        callback = structs.Progress(report)
        if progress is not None:
            c_config.progress = callback
        model = self._tables.c_model
        status = self._lib.pj_engine_create(C.byref(model), C.byref(c_config), C.byref(self._handle))
        if raised:
            self.close()
            raise raised[0]
        check_status(self._lib, status)

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        """Run the trunk over the batch's rows. The result's arrays hold until the next step.

        The batch's ``fill_masks`` and then ``meanwhile`` are called once the device computes. Of this engine they may
        call ``state_read`` and ``state_write`` for slots that the batch does not have, and nothing else. What they
        raise comes out of here when the step is over.
        """
        if meanwhile is None and batch.fill_masks is None:
            return self._run(batch, STEP_TRUNK, None)
        c_out, result = self._outputs.prepare(batch)
        check_status(self._lib, self._lib.pj_step_start(self._open(), C.byref(batch.c_trunk), C.byref(c_out)))
        try:
            if batch.fill_masks is not None:
                self._fill(batch.fill_masks)
            if meanwhile is not None:
                meanwhile()
        except BaseException:
            self._lib.pj_step_wait(self._open())  # its status says less than what was raised
            raise
        check_status(self._lib, self._lib.pj_step_wait(self._open()))
        result.step_us = c_out.step_us
        return result

    def _fill(self, fill_masks: Callable[[], None]) -> None:
        """The step that was started waits for masks until it is told that they are there, or that none will come."""
        is_ok = False
        try:
            fill_masks()
            is_ok = True
        finally:
            status = self._lib.pj_masks_ready(self._open(), is_ok)
        check_status(self._lib, status)

    def mtp(self, batch: StepBatch, hidden: Float32Array) -> StepResult:
        """Run the MTP block; ``hidden`` float32[R, n_embd] is the trunk's hidden row before each token."""
        return self._run(batch, STEP_MTP, hidden)

    def _run(self, batch: StepBatch, kind: int, hidden: Float32Array | None) -> StepResult:
        c_in = batch.c_trunk if kind == STEP_TRUNK else step_input(batch, kind, hidden, self.n_embd)
        c_out, result = self._outputs.prepare(batch)
        check_status(self._lib, self._lib.pj_step(self._open(), C.byref(c_in), C.byref(c_out)))
        result.step_us = c_out.step_us
        return result

    def state_commit(self, slot: int, n_accept: int) -> None:
        """Apply the first ``n_accept`` pending speculative rows of a slot, drop the others."""
        check_status(self._lib, self._lib.pj_state_commit(self._open(), slot, n_accept))

    def state_reset(self, slot: int) -> None:
        check_status(self._lib, self._lib.pj_state_reset(self._open(), slot))

    def state_copy(self, from_slot: int, to_slot: int) -> None:
        check_status(self._lib, self._lib.pj_state_copy(self._open(), from_slot, to_slot))

    def state_read(self, slot: int, out: UInt8Array | None = None) -> UInt8Array:
        """uint8[state_bytes]: the slot's recurrent state. ``out`` gets it, if given."""
        data = np.empty(self.state_bytes, np.uint8) if out is None else out
        target = address("state", data, _UINT8, (self.state_bytes,))
        check_status(self._lib, self._lib.pj_state_read(self._open(), slot, target, data.nbytes))
        return data

    def state_write(self, slot: int, data: UInt8Array) -> None:
        source = address("state", data, _UINT8, (self.state_bytes,))
        check_status(self._lib, self._lib.pj_state_write(self._open(), slot, source, data.nbytes))

    def pages_copy(self, from_pages: npt.ArrayLike, to_pages: npt.ArrayLike) -> None:
        source, target = page_ids(from_pages), page_ids(to_pages)
        if source.shape != target.shape:
            raise NativeError(ERR_ARGUMENT, f"{source.size} pages cannot be copied to {target.size}")
        status = self._lib.pj_pages_copy(self._open(), source.ctypes.data, target.ctypes.data, source.size)
        check_status(self._lib, status)

    def pages_read(self, pages: npt.ArrayLike, out: UInt8Array | None = None) -> UInt8Array:
        """uint8[n, page_bytes]: contents of pages. ``out`` gets them, if given."""
        ids = page_ids(pages)
        data = np.empty((ids.size, self.page_bytes), np.uint8) if out is None else out
        target = address("pages", data, _UINT8, (ids.size, self.page_bytes))
        status = self._lib.pj_pages_read(self._open(), ids.ctypes.data, ids.size, target, data.nbytes)
        check_status(self._lib, status)
        return data

    def pages_write(self, pages: npt.ArrayLike, data: UInt8Array) -> None:
        """Fill pages from uint8[n, page_bytes]."""
        ids = page_ids(pages)
        source = address("pages", data, _UINT8, (ids.size, self.page_bytes))
        status = self._lib.pj_pages_write(self._open(), ids.ctypes.data, ids.size, source, data.nbytes)
        check_status(self._lib, status)

    def host_memory(self, n_bytes: int) -> UInt8Array:
        """uint8[n_bytes] of the host that the device copies from and to fastest; NativeError when there is none."""
        return host_bytes(self._lib, self._device, n_bytes)

    def info(self) -> EngineInfo:
        info = structs.Info()
        check_status(self._lib, self._lib.pj_engine_info(self._open(), C.byref(info)))
        return EngineInfo(
            weight_bytes=info.weight_bytes,
            kv_bytes=info.kv_bytes,
            state_bytes=info.state_bytes,
            workspace_bytes=info.workspace_bytes,
            device=DEVICES[info.device],
            device_name=info.device_name.decode("utf-8", "replace"),
            isa=ISAS[info.isa],
            n_threads=info.n_threads,
        )

    def op_times(self) -> list[OpTime]:
        """Per-op times; empty without profiling."""
        handle = self._open()
        capacity = self._lib.pj_engine_op_times(handle, None, 0)
        if capacity <= 0:
            return []
        entries = (structs.OpTimeEntry * capacity)()
        count = min(capacity, self._lib.pj_engine_op_times(handle, entries, capacity))
        return [OpTime(entry.name.decode("utf-8", "replace"), entry.total_us, entry.calls) for entry in entries[:count]]

    def close(self) -> None:
        """Free the engine. Idempotent."""
        if self._handle:
            self._lib.pj_engine_destroy(self._handle)
            self._handle = C.c_void_p()

    def _open(self) -> C.c_void_p:
        if not self._handle:
            raise NativeError(ERR_ARGUMENT, "the engine is closed")
        return self._handle

    def __enter__(self) -> NativeEngine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def page_ids(pages: npt.ArrayLike) -> Int32Array:
    ids: Int32Array = np.ascontiguousarray(pages, np.int32).reshape(-1)
    return ids
