"""The MTP part of FakeNative: KV in pages of its own, drafts that are right as often as a test wants.

Its KV of a position is the token behind it. Drafts continue what the fake model says itself, so a share of them is
right; ``n_stale`` counts positions before a draft whose KV is not that of the sequence, which costs only quality.
"""

from __future__ import annotations

import zlib

import numpy as np

from pyjet.engine.client import EngineLimits
from pyjet.native.ops import sample_row
from pyjet.native.step import ROW_ARGMAX, ROW_LOGITS, ROW_SAMPLE, StepBatch
from pyjet.native.structs import MAX_DRAFT

MAX_DRAFT_ROWS, MAX_BLOCKS, BLOCK = 32, 64, 64
CHOSEN = ROW_LOGITS | ROW_ARGMAX | ROW_SAMPLE


class Violation(AssertionError):
    """The batch broke a rule of the ABI."""


def require(condition: bool, text: str) -> None:
    if not condition:
        raise Violation(text)


def fake_logits(history: list[int], n_vocab: int) -> np.ndarray:
    """float32[n_vocab] that depends on every token of ``history`` and on nothing else."""
    seed = zlib.crc32(np.array(history, np.int32).tobytes())
    return (np.random.default_rng(seed).standard_normal(n_vocab) * 2).astype(np.float32)


def check_drafts(batch: StepBatch, limits: EngineLimits) -> None:
    """What native/core/step_check.cc wants of verified rows and drafts."""
    most = limits.speculation.max_draft
    for seq in batch.seqs:
        end = int(seq["row_begin"] + seq["n_rows"])
        n_verify, n_draft = int(seq["n_verify"]), int(seq["n_draft"])
        most_verify = min(seq["n_spec"], seq["n_rows"] - 1) if batch.row_next is not None else 0
        require(0 <= n_verify <= most_verify, f"n_verify is {n_verify}, n_spec {seq['n_spec']}")
        require(0 <= n_draft <= (0 if batch.row_next is None else most), f"n_draft is {n_draft}")
        require(-1 <= seq["draft_sample"] < len(batch.samples), "draft_sample")
        if n_verify:
            require(bool((batch.row_flags[end - n_verify - 1 : end] & CHOSEN).all()), "a row to verify wants no token")
        if n_draft:
            last = int(batch.positions[end - 1]) + n_draft
            require(last < seq["n_pages"] * limits.page_tokens, f"drafts reach position {last}")
            require(last < limits.n_ctx_slot, "drafts beyond the context")
    if batch.row_next is not None:
        check_next(batch, limits, most)


def check_next(batch: StepBatch, limits: EngineLimits, most: int) -> None:
    require(most > 0, "row_next in an engine without drafts")
    chosen = (batch.row_flags & CHOSEN) != 0
    require(np.count_nonzero(chosen) <= MAX_DRAFT_ROWS, "too many rows want tokens")
    require(bool((batch.row_next >= -1).all() and (batch.row_next < limits.n_vocab).all()), "row_next")
    require(bool((chosen | (batch.row_next >= 0)).all()), "the token after a row is neither known nor chosen")
    blocks = batch.draft_blocks.tolist()
    require(len(set(blocks)) == len(blocks) <= MAX_BLOCKS, "draft_blocks")
    first, last = limits.speculation.draft_vocab // BLOCK, (limits.n_vocab - 1) // BLOCK
    require(all(first <= block <= last for block in blocks), f"blocks {blocks}, allowed are {first}..{last}")


class FakeMtp:
    """``share_right`` of the drafts are what the model says; ``pages`` int64[n_pages, page_tokens]."""

    def __init__(self, limits: EngineLimits, pages: np.ndarray) -> None:
        self.limits = limits
        self.pages = pages
        self.share_right = 0.7
        self.certainty = 1.0  # times as probable as they are does the block think its drafts
        self.n_steps = self.n_passes = self.n_stale = 0
        self.drafts = np.empty((0, MAX_DRAFT), np.int32)
        self.probs = np.empty((0, MAX_DRAFT), np.float32)

    def begin(self, batch: StepBatch) -> None:
        n_seqs = 0 if batch.row_next is None else len(batch.seqs)
        self.drafts = np.full((n_seqs, MAX_DRAFT), -1, np.int32)
        self.probs = np.zeros((n_seqs, MAX_DRAFT), np.float32)
        self.n_steps += n_seqs > 0
        self.n_passes += int(batch.seqs["n_draft"].max(initial=0))

    def run(self, batch: StepBatch, index: int, history: list[int], guesses: list[int]) -> None:
        """``history``: all tokens of the sequence in the step; ``guesses``: the token chosen for each row, -1: none."""
        seq = batch.seqs[index]
        begin, n_rows = int(seq["row_begin"]), int(seq["n_rows"])
        table = batch.page_table[seq["page_begin"] : seq["page_begin"] + seq["n_pages"]]
        first = len(history) - n_rows
        for i in range(n_rows):
            token = int(batch.row_next[begin + i])
            self._write(table, first + i, guesses[i] if token < 0 else token)
        if seq["n_draft"]:
            n_right = self._n_right(batch, begin, n_rows, int(seq["n_verify"]), guesses)
            last = n_rows - 1 - int(seq["n_verify"]) + n_right
            self._draft(batch, index, [*history[: first + last + 1], guesses[last]], table, n_right)

    def _n_right(self, batch: StepBatch, begin: int, n_rows: int, n_verify: int, guesses: list[int]) -> int:
        rows = range(n_rows - n_verify, n_rows)
        wrong = (i for i, row in enumerate(rows) if guesses[row - 1] != batch.tokens[begin + row])
        return next(wrong, n_verify)

    def _write(self, table: np.ndarray, position: int, token: int) -> None:
        size = self.limits.page_tokens
        self.pages[table[position // size], position % size] = token

    def _draft(self, batch: StepBatch, index: int, context: list[int], table: np.ndarray, n_right: int) -> None:
        """``context`` ends with the newest token, before it ``n_right`` drafts that were verified."""
        seq = batch.seqs[index]
        stored = self.pages[table].reshape(-1)[: len(context) - 1].tolist()
        self.n_stale += sum(a != b for a, b in zip(stored, context[1:]))
        for j in range(int(seq["n_draft"])):
            rng = np.random.default_rng(zlib.crc32(np.array([j, *context], np.int32).tobytes()))
            token = self._right_token(batch, index, context, n_right + 1 + j)
            is_right = rng.random() < self.share_right
            if not is_right:
                token = (token + 1 + int(rng.integers(self.limits.n_vocab - 1))) % self.limits.n_vocab
            self.drafts[index, j] = token
            likely = rng.normal(0.8 if is_right else 0.3, 0.2)
            self.probs[index, j] = np.clip(self.certainty * likely, 1e-4, 1.0)
            if j:
                self._write(table, len(context) - 2, token)
            context = [*context, token]

    def _right_token(self, batch: StepBatch, index: int, context: list[int], n_after: int) -> int:
        """What follows, ``n_after`` tokens after the one that the sequence's first sample is for."""
        logits = fake_logits(context, self.limits.n_vocab)
        sample = int(batch.seqs[index]["draft_sample"])
        if sample < 0:
            return int(logits.argmax())
        one = batch.samples[sample : sample + 1].copy()
        one["index"] += n_after
        token = sample_row(logits, one, batch.counts, batch.biases)
        return token if token >= 0 else int(logits.argmax())
