"""Answers of the most likely tokens, from both engines, token by token as they write them for their users."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from cli.llama_cpp import LlamaContext, LlamaModel, Logits, Tokens
from cli.sequence import Sequence, open_engine
from compat_tests.greedy.difference import Answer, Comparison, compare
from compat_tests.greedy.prompts import Prompt
from pyjet.model.reader import Model, load_model
from pyjet.model.tokenizer import Tokenizer

# Other ways in which llama.cpp computes the same rows: how far they are from its own answer is its noise.
OTHER_MODES = {"batch 512": (512, True), "batch 8": (8, True), "batch 512, no flash": (512, False)}
KV_TYPE = "f16"


@dataclass(frozen=True)
class Job:
    """One prompt of one file, answered with at most n_tokens tokens."""

    path: Path
    prompt: Prompt
    n_tokens: int


def run_job(job: Job) -> Comparison:
    """Answer one prompt with both engines, on one thread each, and compare."""
    model, llama = _open(job.path), _open_llama(job.path)
    ends = Tokenizer.from_metadata(model.metadata).eog_ids
    theirs = llama_answer(llama, job.prompt.tokens, job.n_tokens, ends)
    ours = pyjet_answer(model, job.prompt.tokens, job.n_tokens, ends)
    others = {name: llama_rows(llama, job.prompt.tokens, theirs.tokens, *mode) for name, mode in OTHER_MODES.items()}
    return compare(job.prompt.name, ours, theirs, others)


@lru_cache(maxsize=1)
def _open(path: Path) -> Model:
    return load_model(path)


@lru_cache(maxsize=1)
def _open_llama(path: Path) -> LlamaModel:
    return LlamaModel(path)


def pyjet_answer(model: Model, prompt: Tokens, n_tokens: int, ends: Collection[int]) -> Answer:
    """pyjet's answer, on one thread of the CPU backend."""
    with open_engine(model, len(prompt) + n_tokens, kv_type=KV_TYPE, n_threads=1) as engine:
        return _greedy(Sequence(engine, 512).append, prompt, n_tokens, ends)


def llama_answer(llama: LlamaModel, prompt: Tokens, n_tokens: int, ends: Collection[int]) -> Answer:
    """llama.cpp's answer: the prompt in one batch, then token by token, with flash attention."""
    with LlamaContext(llama, len(prompt) + n_tokens, KV_TYPE, n_threads=1, flash=True) as context:
        return _greedy(lambda tokens: context.decode(tokens, all_logits=False), prompt, n_tokens, ends)


def _greedy(append: Callable[[Tokens], Logits], prompt: Tokens, n_tokens: int, ends: Collection[int]) -> Answer:
    rows = [append(prompt)[-1]]
    tokens = [int(rows[0].argmax())]
    while len(tokens) < n_tokens and tokens[-1] not in ends:
        rows.append(append(np.array(tokens[-1:], dtype=np.int32))[-1])
        tokens.append(int(rows[-1].argmax()))
    return Answer(np.array(tokens, dtype=np.int32), np.stack(rows))


def llama_rows(llama: LlamaModel, prompt: Tokens, answer: Tokens, batch: int, flash: bool) -> Logits:
    """llama.cpp's logits float32 [len(answer), n_vocab] of the rows that chose an answer, in other batches."""
    tokens = np.concatenate([prompt, answer[:-1]])
    with LlamaContext(llama, len(tokens), KV_TYPE, n_threads=1, flash=flash) as context:
        rows = [context.decode(tokens[i : i + batch], all_logits=True) for i in range(0, len(tokens), batch)]
    return np.concatenate(rows)[-len(answer) :]
