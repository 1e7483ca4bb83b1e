"""Tokens taken at once are the same as one after the other, and those of two requests as those of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyjet.engine.request import GenerationRequest, SamplingParams
from pyjet.engine.sequence import Sequence

SAMPLING = (SamplingParams(), SamplingParams(repeat_penalty=1.3, repeat_last_n=4))


def decoding(sampling: SamplingParams) -> Sequence:
    sequence = Sequence(GenerationRequest("a", (1, 2, 3), sampling), 0, 0.0, 40, 4, 100)
    sequence.n_computed = sequence.n_reached = 3
    sequence.add_token(7)
    return sequence


def state_of(sequence: Sequence) -> dict[str, Any]:
    sampler, fields = sequence.sampler, vars(sequence)
    names = ("n_computed", "n_reached", "n_pending", "n_right", "generated", "token_times")
    counts = sampler.counts_after(())
    return {
        **{name: fields[name] for name in names},
        "tokens": sequence.tokens.tolist(),
        "index": sampler.index,
        "counts": None if counts is None else counts.tolist(),
    }


@pytest.mark.parametrize("sampling", SAMPLING, ids=["plain", "penalties"])
@pytest.mark.parametrize("tokens", [[5], [5, 7, 5], [9, 8, 7, 6, 5, 4, 3, 2]], ids=len)
def test_all_at_once_or_one_by_one(tokens: list[int], sampling: SamplingParams) -> None:
    at_once, one_by_one = decoding(sampling), decoding(sampling)
    at_once.take_drafts(tokens, 2.5)
    for n_right, token in enumerate(tokens):
        one_by_one.advance_decoding(n_right)
        one_by_one.n_right += n_right > 0
        one_by_one.add_token(token)
        one_by_one.token_times.append(2.5)
        one_by_one.sampler.accept(token)
    assert state_of(at_once) == state_of(one_by_one)


def test_an_answer_that_goes_on_draws_what_one_request_would_have_drawn() -> None:
    sampling, logits = SamplingParams(temperature=1.0, seed=7), np.zeros(100, np.float32)

    def drawn(prompt: tuple[int, ...], n_tokens: int, n_before: int) -> list[int]:
        request = GenerationRequest("a", prompt, sampling, n_before=n_before)
        sampler = Sequence(request, 0, 0.0, 40, 4, 100).sampler
        tokens = []
        for _ in range(n_tokens):
            tokens.append(sampler.sample(logits)[0])
            sampler.accept(tokens[-1])
        return tokens

    whole = drawn((1, 2), 12, 0)
    assert drawn((2, *whole[:5]), 7, 5) == whole[5:] != drawn((2, *whole[:5]), 7, 0)
