"""Logits of llama.cpp itself, in the three ways in which its CPU backend computes them.

It picks kernels by the number of tokens in a batch: one token, as it writes an answer; a few, as it
checks drafts; many, as it reads a prompt (64, 256 and 512 give equal bits). All three are llama.cpp,
so what they differ by is the measure for another engine.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from cli.llama_cpp import LlamaContext, LlamaModel, Logits, Tokens

# name -> tokens of one llama_decode call, which it computes as one micro-batch
MODES = {"single": 1, "batch 8": 8, "batch 512": 512}
MODE_PAIRS = tuple(combinations(MODES, 2))


def llama_logits(model: LlamaModel, tokens: Tokens, mode: str, kv_type: str) -> Logits:
    """Logits float32 [n, n_vocab]; row i predicts token i + 1. One thread."""
    step = MODES[mode]
    with LlamaContext(model, len(tokens), kv_type, n_threads=1) as context:
        rows = [context.decode(tokens[i : i + step], all_logits=True) for i in range(0, len(tokens), step)]
    return np.concatenate(rows)
