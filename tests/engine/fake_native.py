"""A stepper in pure Python that punishes scheduling mistakes.

Logits are a hash of all tokens of the sequence, read back from the pages and from the state slot, so a wrong page, a
wrong slot, a row too many or too few changes the answer. Violations of the C ABI's rules raise. Rows to sample are
sampled by the library, but after every fourth token the chain counts as not settled.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyjet.engine.client import EngineLimits
from pyjet.engine.settings import EngineSettings
from pyjet.native.ops import sample_row
from pyjet.native.step import ROW_ARGMAX, ROW_HIDDEN, ROW_LOGITS, ROW_SAMPLE, SEQ_RESET, StepBatch, StepResult
from tests.engine import fake_mtp
from tests.engine.fake_mtp import CHOSEN, FakeMtp, check_drafts, require

N_VOCAB = 48
LIMITS = EngineLimits(
    n_slots=3,
    n_ctx_slot=40,
    n_ctx_total=96,
    n_vocab=N_VOCAB,
    max_rows=8,
    page_tokens=4,
    n_extra_states=2,
    max_spec=3,
)


def fake_logits(history: list[int], n_vocab: int = N_VOCAB) -> np.ndarray:
    return fake_mtp.fake_logits(history, n_vocab)


def fake_hidden(history: list[int]) -> np.ndarray:
    """float32[3], of all tokens so far."""
    return fake_mtp.fake_logits([-1, *history], 3)


class FakeNative:
    """Same calls as NativeEngine. ``gate``, when given, is acquired once per step (a test can hold it).

    Without ``has_state`` it is a model of attention alone: a sequence is what its pages hold.
    """

    def __init__(
        self, limits: EngineLimits = LIMITS, gate: threading.Semaphore | None = None, *, has_state: bool = True
    ) -> None:
        self.limits = limits
        self.gate = gate
        self.closed = False
        self.fail_at: int | None = None
        self.delay = 0.0
        self.answer: Callable[[list[int]], int] | None = None  # the best token after all before it
        self.step_us: Callable[[int], float] = lambda n_rows: 1.0
        self.steps: list[int] = []  # rows of each step
        self.companies: list[int] = []  # sequences of each step
        self.n_sampled = self.n_unsettled = 0  # rows
        self.hidden: list[np.ndarray] = []  # of the step
        n_pages = -(-limits.n_ctx_total // limits.page_tokens)
        # A page has its tokens, and those that the MTP block knows of.
        self.contents = np.full((n_pages, 2, limits.page_tokens), -1, np.int64)
        self.pages = self.contents[:, 0]
        self.mtp = FakeMtp(limits, self.contents[:, 1])
        self.states: list[list[int]] = [[] for _ in range(limits.n_state_slots)]
        self.pending: list[list[int]] = [[] for _ in range(limits.n_state_slots)]  # rows that wait to be accepted
        self.copies_beside_steps = True
        self.computing: set[int] | None = None  # state slots of the step that computes
        self.state_bytes = 4 * (1 + limits.n_ctx_slot) if has_state else 0
        self.page_bytes = self.contents[0].nbytes
        self.host_allocated = 0

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        if batch.fill_masks is not None:
            batch.fill_masks()
        if meanwhile is not None:
            self.computing = set(batch.seqs["state_slot"].tolist())
            try:
                meanwhile()
            finally:
                self.computing = None
        if self.gate is not None:
            self.gate.acquire()
        if self.fail_at is not None and len(self.steps) >= self.fail_at:
            raise RuntimeError("the device fell off the bus")
        if self.delay:
            time.sleep(self.delay)
        self._check(batch)
        self.mtp.begin(batch)
        self.steps.append(len(batch.tokens))
        self.companies.append(len(batch.seqs))
        argmax, sampled = np.full((2, len(batch.tokens)), -1, np.int32)
        self.hidden = []
        logits = [
            row
            for index, seq in enumerate(batch.seqs)
            for row in self._run(batch, index, {name: int(seq[name]) for name in seq.dtype.names}, argmax, sampled)
        ]
        hidden = np.array(self.hidden, np.float32).reshape(-1, 3)
        rows = np.array(logits, np.float32).reshape(-1, self.limits.n_vocab)
        step_us = self.step_us(len(batch.tokens))
        return StepResult(rows, hidden, argmax, sampled, step_us, self.mtp.drafts, self.mtp.probs)

    def _check(self, batch: StepBatch) -> None:
        n = len(batch.tokens)
        require(1 <= n <= self.limits.max_rows, f"{n} rows")
        require(1 <= len(batch.seqs) <= self.limits.n_slots, "number of sequences")
        slots = [int(s["state_slot"]) for s in batch.seqs]
        require(len(set(slots)) == len(slots), "two sequences share a state slot")
        tables = [batch.page_table[s["page_begin"] : s["page_begin"] + s["n_pages"]].tolist() for s in batch.seqs]
        for i, written in enumerate(self._written_pages(batch, s, t) for s, t in zip(batch.seqs, tables)):
            for j, table in enumerate(tables):
                require(i == j or not written & set(table), "a page is written that another sequence has")
        require(sum(int(s["n_rows"]) for s in batch.seqs) == n, "rows that belong to no sequence")
        n_sampled = int(np.count_nonzero(batch.row_flags & ROW_SAMPLE))
        require(len(batch.samples) == n_sampled, f"{len(batch.samples)} samples for {n_sampled} rows")
        check_drafts(batch, self.limits)
        require(bool((batch.tokens >= 0).all() and (batch.tokens < self.limits.n_vocab).all()), "token ids")

    def _written_pages(self, batch: StepBatch, seq: np.void, table: list[int]) -> set[int]:
        first = int(batch.positions[seq["row_begin"]])
        size = self.limits.page_tokens
        n = int(seq["n_rows"] + seq["n_draft"])
        return {table[position // size] for position in range(first, first + n)}

    def _run(
        self, batch: StepBatch, index: int, seq: dict[str, int], argmax: np.ndarray, sampled: np.ndarray
    ) -> list[np.ndarray]:
        slot = seq["state_slot"]
        if seq["flags"] & SEQ_RESET:
            self.state_reset(slot)
        self.state_commit(slot, seq["n_accept"])
        require(0 <= seq["n_spec"] <= min(seq["n_rows"], self.limits.max_spec), "n_spec")
        table = batch.page_table[seq["page_begin"] : seq["page_begin"] + seq["n_pages"]]
        first = int(batch.positions[seq["row_begin"]])
        state = list(self.states[slot]) if self.state_bytes else self.pages[table].reshape(-1)[:first].tolist()
        require(-1 not in state, "rows before the first one were never computed")
        logits, guesses = [], []
        for row in range(seq["row_begin"], seq["row_begin"] + seq["n_rows"]):
            position, size = int(batch.positions[row]), self.limits.page_tokens
            require(int(batch.row_seq[row]) == index, "row_seq")
            require(position == len(state), f"position {position} after {len(state)} tokens in the state")
            require(position < len(table) * size, "the page table does not cover the position")
            state.append(int(batch.tokens[row]))
            self.pages[table[position // size], position % size] = batch.tokens[row]
            require(self.pages[table].reshape(-1)[: position + 1].tolist() == state, "pages and state disagree")
            values = self._logits(state) if batch.row_flags[row] & CHOSEN else None
            if batch.row_flags[row] & ROW_HIDDEN:
                self.hidden.append(fake_hidden(state))
            if batch.row_flags[row] & ROW_ARGMAX:
                argmax[row] = int(np.argmax(values))
            if batch.row_flags[row] & ROW_SAMPLE:
                sampled[row] = self._sample(batch, row, values)
            if batch.row_flags[row] & (ROW_LOGITS | ROW_SAMPLE):
                is_written = sampled[row] < 0 or batch.row_flags[row] & ROW_LOGITS
                logits.append(values if is_written else np.full_like(values, np.nan))
            guesses.append(-1 if values is None else int(sampled[row] if sampled[row] >= 0 else np.argmax(values)))
        if batch.row_next is not None:
            self.mtp.run(batch, index, state, guesses)
        n_committed = len(state) - seq["n_spec"]
        self.states[slot], self.pending[slot] = state[:n_committed], state[n_committed:]
        return logits

    def _logits(self, history: list[int]) -> np.ndarray:
        values = fake_logits(history, self.limits.n_vocab)
        if self.answer is not None:
            values[self.answer(history)] = 100.0
        return values

    def _sample(self, batch: StepBatch, row: int, logits: np.ndarray) -> int:
        n_before = int(np.count_nonzero(batch.row_flags[:row] & ROW_SAMPLE))
        one = batch.samples[n_before : n_before + 1]
        token = sample_row(logits, one, batch.counts, batch.biases, batch.masks)
        if batch.positions[row] % 4 == 3:
            token = -1
        self.n_sampled += token >= 0
        self.n_unsettled += token < 0
        return token

    def _require_no_step(self) -> None:
        require(self.computing is None, "a step computes")

    def state_reset(self, slot: int) -> None:
        self._require_no_step()
        self.states[slot], self.pending[slot] = [], []

    def state_commit(self, slot: int, n_accept: int) -> None:
        self._require_no_step()
        require(0 <= n_accept <= len(self.pending[slot]), f"{n_accept} of {len(self.pending[slot])} rows accepted")
        self.states[slot] = self.states[slot] + self.pending[slot][:n_accept]
        self.pending[slot] = []

    def state_copy(self, from_slot: int, to_slot: int) -> None:
        self._require_no_step()
        require(self.state_bytes > 0, "there is no state to copy")
        require(from_slot != to_slot, "a state is copied to itself")
        self.states[to_slot], self.pending[to_slot] = list(self.states[from_slot]), []

    def state_read(self, slot: int, out: np.ndarray | None = None) -> np.ndarray:
        require(self.state_bytes > 0, "there is no state to read")
        require(slot not in (self.computing or ()), "a step that computes has the state")
        numbers = np.full(self.state_bytes // 4, -7, np.int32)
        numbers[0] = len(self.states[slot])
        numbers[1 : 1 + numbers[0]] = self.states[slot]
        data = np.empty(self.state_bytes, np.uint8) if out is None else out
        data[:] = numbers.view(np.uint8)
        return data

    def state_write(self, slot: int, data: np.ndarray) -> None:
        require(slot not in (self.computing or ()), "a step that computes has the state")
        require(self.state_bytes > 0 and data.shape == (self.state_bytes,), f"a state of {data.shape}")
        numbers = data.view(np.int32)
        self.states[slot], self.pending[slot] = numbers[1 : 1 + numbers[0]].tolist(), []

    def pages_copy(self, from_pages: list[int], to_pages: list[int]) -> None:
        self._require_no_step()
        self.contents[to_pages] = self.contents[from_pages]

    def pages_read(self, pages: list[int], out: np.ndarray | None = None) -> np.ndarray:
        self._require_no_step()
        data = np.empty((len(pages), self.page_bytes), np.uint8) if out is None else out
        data[:] = self.contents[pages].reshape(len(pages), -1).view(np.uint8)
        return data

    def pages_write(self, pages: list[int], data: np.ndarray) -> None:
        self._require_no_step()
        require(data.shape == (len(pages), self.page_bytes), f"pages of {data.shape}")
        self.contents[pages] = np.ascontiguousarray(data).view(np.int64).reshape(len(pages), 2, -1)

    def host_memory(self, n_bytes: int) -> np.ndarray:
        require(self.computing is None, "memory is allocated while a step computes")
        self.host_allocated += n_bytes
        return np.full(n_bytes, 0xEE, np.uint8)

    def close(self) -> None:
        self.closed = True


def alone(prompt: tuple[int, ...], n: int, sample, stop_ids: frozenset[int] = frozenset()) -> list[int]:
    """The answer by definition: ``sample(logits)`` on the whole history, token by token."""
    history, answer = list(prompt), []
    while len(answer) < n:
        answer.append(sample(fake_logits(history)))
        history.append(answer[-1])
        if answer[-1] in stop_ids:
            break
    return answer


def fake_factory(settings: EngineSettings, progress) -> tuple[FakeNative, EngineLimits]:
    """An EngineFactory; ``settings.model_path`` says what goes wrong: "fail-at-3", "bad-model", ..."""
    progress("packing weights", 0, 10)
    progress("packing weights", 10, 10)
    limits = settings.limits(N_VOCAB)
    how, _, step = settings.model_path.rpartition("-at-")
    if settings.model_path == "bad-model":
        raise ValueError("tensor blk.0.ffn_up.weight is missing")
    if settings.model_path == "no-pages":
        return object(), limits  # type: ignore[return-value]
    native: FakeNative
    if how == "exit":
        native = DyingNative(limits, int(step))
    elif how.startswith("hang:"):
        native = HangingNative(limits, int(step), Path(how.removeprefix("hang:")))
    else:
        native = FakeNative(limits)
    native.fail_at = int(step) if how == "fail" else None
    native.delay = 0.02 if settings.model_path == "slow" else 0.0
    return native, limits


class DyingNative(FakeNative):
    """Ends its process in the given step, as a driver would."""

    def __init__(self, limits: EngineLimits, at: int) -> None:
        super().__init__(limits)
        self.at = at

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        if len(self.steps) >= self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(batch, meanwhile)


class HangingNative(FakeNative):
    """Hangs in the given step until a file exists."""

    def __init__(self, limits: EngineLimits, at: int, until: Path) -> None:
        super().__init__(limits)
        self.at = at
        self.until = until

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        while len(self.steps) == self.at and not self.until.exists():
            time.sleep(0.01)
        return super().step(batch, meanwhile)
