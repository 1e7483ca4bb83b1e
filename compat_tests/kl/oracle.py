"""Logits of llama.cpp itself, in the two ways that it computes them.

`batch` evaluates a text in one call, as it reads a prompt; `single` one token per call, as it writes
an answer. Both are llama.cpp, so the divergence between them is the noise that another engine is
measured against.
"""

from __future__ import annotations

import numpy as np

from cli.llama_cpp import LlamaContext, LlamaModel, Logits, Tokens

MODES = ("batch", "single")


def llama_logits(model: LlamaModel, tokens: Tokens, mode: str, kv_type: str, n_threads: int) -> Logits:
    """Logits float32 [n, n_vocab]; row i predicts token i + 1."""
    step = len(tokens) if mode == "batch" else 1
    with LlamaContext(model, len(tokens), kv_type, n_threads) as context:
        rows = [context.decode(tokens[i : i + step], all_logits=True) for i in range(0, len(tokens), step)]
    return np.concatenate(rows)
