"""DRY and what it is made of, against searches through the whole text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.candidates import Candidates
from pyjet.engine.request import Breakers, SamplingParams
from pyjet.engine.samplers.dry import Dry
from pyjet.engine.samplers.sequence_breaks import SequenceBreaks
from pyjet.engine.samplers.suffix_matches import SuffixMatches, suffix_matches, z_lengths

N_VOCAB = 5
TEXT = st.lists(st.integers(0, N_VOCAB - 1), max_size=60)
SEQUENCES = st.lists(st.lists(st.integers(0, N_VOCAB - 1), min_size=2, max_size=4).map(tuple), max_size=3).map(tuple)
BREAKERS = st.builds(Breakers, st.frozensets(st.integers(0, N_VOCAB - 1), max_size=2), SEQUENCES)
LAST_N = st.sampled_from([1, 2, 5, 20, 1000])


def common_end(left: list[int], right: list[int]) -> int:
    n = 0
    while n < min(len(left), len(right)) and left[-1 - n] == right[-1 - n]:
        n += 1
    return n


def behind_the_last_break(window: list[int], breakers: Breakers) -> int:
    """Tokens behind the breaker that begins last; of several there, the longest counts."""
    every = [(token,) for token in breakers.tokens] + list(breakers.sequences)
    for begin in reversed(range(len(window))):
        ends = [begin + len(each) for each in every if tuple(window[begin : begin + len(each)]) == each]
        if ends:
            return len(window) - max(ends)
    return len(window)


@given(TEXT)
def test_suffix_matches_of_a_text(text: list[int]) -> None:
    expect = [common_end(text[: i + 1], text) for i in range(len(text) - 1)]
    assert suffix_matches(text).tolist()[:-1] == expect
    assert z_lengths(text[::-1])[::-1][:-1] == expect


def test_suffix_matches_of_a_text_that_only_repeats() -> None:
    assert suffix_matches([3] * 3000).tolist() == [*range(1, 3000), 0]
    line = list(range(50))
    lengths = suffix_matches(line * 40)
    assert [i for i in range(2000) if lengths[i]] == list(range(49, 1950, 50)) and lengths[1949] == 1950


@given(TEXT, st.lists(st.integers(0, N_VOCAB - 1), max_size=80), LAST_N)
def test_suffix_matches_of_a_growing_text(prompt: list[int], answer: list[int], last_n: int) -> None:
    matches = SuffixMatches(last_n)
    matches.add(prompt)
    text = list(prompt)
    for token in answer:
        matches.add([token])
        text.append(token)
        window = text[-last_n:]
        assert matches.tokens.tolist() == window
        expect = [common_end(window[: i + 1], window) for i in range(len(window) - 1)]
        assert matches.lengths.tolist()[:-1] == expect


@given(TEXT, TEXT, BREAKERS, LAST_N)
def test_breaks_of_a_growing_text(prompt: list[int], answer: list[int], breakers: Breakers, last_n: int) -> None:
    breaks = SequenceBreaks(breakers)
    text = list(prompt)
    breaks.add(np.array(text[-last_n:], np.int32), len(text))
    for token in answer:
        text.append(token)
        window = text[-last_n:]
        breaks.add(np.array(window, np.int32), 1)
        assert breaks.n_behind(len(window)) == behind_the_last_break(window, breakers)


@pytest.mark.parametrize("sequences", [((1, 2), (1, 2, 3)), ((1, 2, 3), (1, 2))])
def test_the_longest_breaker_counts(sequences: tuple[tuple[int, ...], ...]) -> None:
    breaks = SequenceBreaks(Breakers(frozenset({1}), sequences))
    breaks.add(np.array([4, 1, 2, 3, 4], np.int32), 5)
    assert breaks.n_behind(5) == 1
    breaks.add(np.array([1, 2, 3, 4, 4], np.int32), 1)
    assert (breaks.n_behind(5), breaks.n_behind(4)) == (2, 4)


def penalties(window: list[int], params: SamplingParams) -> dict[int, float]:
    """What each token loses, by definition."""
    limit = behind_the_last_break(window, params.dry_breakers)
    if len(window) <= params.dry_allowed_length or limit < params.dry_allowed_length:
        return {}
    longest: dict[int, int] = {}
    for i in range(len(window) - 1):
        length = min(common_end(window[: i + 1], window), limit)
        if length >= params.dry_allowed_length:
            longest[window[i + 1]] = max(longest.get(window[i + 1], 0), length)
    return {
        token: params.dry_multiplier * params.dry_base ** (length - params.dry_allowed_length)
        for token, length in longest.items()
        if token not in params.dry_breakers.tokens
    }


@given(TEXT, TEXT, BREAKERS, LAST_N, st.integers(0, 4), st.booleans())
def test_penalties(
    prompt: list[int], answer: list[int], breakers: Breakers, last_n: int, allowed: int, is_narrow: bool
) -> None:
    params = SamplingParams(
        dry_multiplier=0.5, dry_base=1.5, dry_allowed_length=allowed, dry_penalty_last_n=last_n, dry_breakers=breakers
    )
    dry = Dry(params)
    dry.accept(prompt)
    for i, token in enumerate(answer):
        dry.accept([token])
        candidates = Candidates(np.zeros(N_VOCAB, np.float32))
        if is_narrow:
            candidates.keep(np.array([3, 1]), is_sorted=True)
        dry.apply(candidates)
        expect = penalties([*prompt, *answer[: i + 1]][-last_n:], params)
        for at in range(len(candidates)):
            assert candidates.logits[at] == pytest.approx(-expect.get(candidates.token(at), 0.0), rel=1e-5)


def test_exponents_have_a_bound() -> None:
    dry = Dry(SamplingParams(dry_multiplier=1.0, dry_base=1e20, dry_penalty_last_n=100, dry_allowed_length=1))
    dry.accept([1] * 100)
    candidates = Candidates(np.zeros(3, np.float32))
    dry.apply(candidates)
    assert candidates.logits.tolist() == [0.0, pytest.approx(-1e20), 0.0]


def test_a_long_text_without_end() -> None:
    """The window moves through arrays that are made anew now and then."""
    matches = SuffixMatches(50)
    text = [i * i % 7 for i in range(1000)]
    matches.add(text[:30])
    for token in text[30:]:
        matches.add([token])
    assert matches.tokens.tolist() == text[-50:]
    assert matches.lengths[:-1].tolist() == [common_end(text[-50:][: i + 1], text[-50:]) for i in range(49)]
