"""Logits of llama.cpp itself, in the ways in which its CPU backend computes them for its users.

It picks kernels by the number of tokens in a batch: one token, as it writes an answer; a few, as it
checks drafts; many, as it reads a prompt (64, 256 and 512 give equal bits). Flash attention, on by
default, is a setting of its command line; it cannot be off with q8_0 values. All of these are
llama.cpp, so what they differ by is the measure for another engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cli.llama_cpp import LlamaContext, LlamaModel, Logits, Tokens


@dataclass(frozen=True)
class Mode:
    """tokens: of one llama_decode call, which computes them as one micro-batch. flash: flash attention."""

    tokens: int
    flash: bool


MODES = {
    "batch 512": Mode(512, True),
    "batch 8": Mode(8, True),
    "single": Mode(1, True),
    "batch 512, no flash": Mode(512, False),
    "batch 8, no flash": Mode(8, False),
    "single, no flash": Mode(1, False),
}


def modes_for(kv_type: str) -> tuple[str, ...]:
    """The modes that llama.cpp has with this KV type."""
    return tuple(name for name, mode in MODES.items() if mode.flash or kv_type == "f16")


def llama_logits(model: LlamaModel, tokens: Tokens, mode: str, kv_type: str) -> Logits:
    """Logits float32 [n, n_vocab]; row i predicts token i + 1. One thread."""
    step = MODES[mode].tokens
    with LlamaContext(model, len(tokens), kv_type, n_threads=1, flash=MODES[mode].flash) as context:
        rows = [context.decode(tokens[i : i + step], all_logits=True) for i in range(0, len(tokens), step)]
    return np.concatenate(rows)


def distinct(logits: dict[str, Logits]) -> dict[str, Logits]:
    """The modes without those whose logits have the same bits as a mode before them."""
    kept: dict[str, Logits] = {}
    for mode, rows in logits.items():
        if not any(np.array_equal(rows.view(np.uint32), other.view(np.uint32)) for other in kept.values()):
            kept[mode] = rows
    return kept
