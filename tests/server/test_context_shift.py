"""--context-shift: a text that fills its slot goes on without some of its oldest tokens."""

from __future__ import annotations

from typing import Any

import pytest

from pyjet.server.context_shift import n_kept, shifted
from pyjet.server.profiles import Profile
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import make_client, post, stream
from tests.server.test_chat import BATCHES

PROMPT = list(range(100, 120))
N_CTX = 32


def ask(engine: ScriptedEngine, body: dict[str, Any], **options: Any) -> Any:
    client = make_client(engine, context_shift=True, **options)
    return post(client, "/completion", {"prompt": PROMPT, "return_tokens": True, **body})


def counting(batch: int = 1, first: int = 200, **how: Any) -> Script:
    return Script(range(first, first + 100), batch=batch, **how)


def small_engine(*scripts: Script) -> ScriptedEngine:
    return ScriptedEngine(*scripts, n_slots=1, n_ctx_slot=N_CTX)


@pytest.mark.parametrize("batch", BATCHES)
def test_half_of_what_is_not_kept_leaves(batch: int) -> None:
    engine = small_engine(counting(batch, cached=5), counting(batch, first=300, cached=3))
    answer = ask(engine, {"n_predict": 20, "n_keep": 4})
    first, second = engine.requests
    generated = list(range(200, 212))
    whole = PROMPT + generated
    assert len(whole) == N_CTX
    assert list(second.prompt) == whole[:4] + whole[4 + 14 :]
    assert (first.n_before, second.n_before) == (0, len(generated))
    assert second.max_tokens == 20 - len(generated) and second.priority == first.priority + 1
    assert answer["tokens"] == generated + list(range(300, 308))
    assert (answer["tokens_predicted"], answer["timings"]["predicted_n"]) == (20, 20)
    assert answer["truncated"] is True and answer["stop_type"] == "limit"
    assert (answer["timings"]["cache_n"], answer["timings"]["prompt_n"]) == (5, len(PROMPT) - 5)
    assert answer["tokens_cached"] == len(second.prompt) + 7
    assert engine.wait_idle()


def test_the_memory_of_the_sampler_goes_on() -> None:
    """The scripted engine's memory behind a token is that token."""
    engine = small_engine(counting(), counting(first=300), counting(first=400))
    ask(engine, {"n_predict": 30, "n_discard": 10, "mirostat": 2})
    assert [request.memory for request in engine.requests] == [(), (211.0,), (309.0,)]


def test_it_goes_on_as_often_as_it_must() -> None:
    engine = small_engine(counting(), counting(first=300), counting(first=400))
    answer = ask(engine, {"n_predict": 50, "n_discard": 10})
    assert len(engine.requests) == 5 and [len(request.prompt) for request in engine.requests[1:]] == [22] * 4
    assert answer["tokens_predicted"] == 50 and len(answer["tokens"]) == 50


def test_streams_tell_every_token_once() -> None:
    engine = small_engine(counting(), counting(first=300))
    client = make_client(engine, context_shift=True)
    events = stream(client, "/completion", {"prompt": PROMPT, "n_predict": 20})
    assert [event["tokens"][0] for event in events[:-1]] == [*range(200, 212), *range(300, 308)]
    assert events[-1]["truncated"] is True


def test_a_limit_at_the_last_place_is_a_limit() -> None:
    engine = small_engine(counting())
    answer = ask(engine, {"n_predict": 12})
    assert len(engine.requests) == 1 and answer["tokens_predicted"] == 12 and answer["stop_type"] == "limit"


def test_without_the_option_the_text_ends() -> None:
    engine = small_engine(counting())
    answer = post(make_client(engine), "/completion", {"prompt": PROMPT, "n_predict": 20})
    assert answer["tokens_predicted"] == 12 and answer["truncated"] is True


def test_a_profile_with_a_smaller_context_still_ends_there() -> None:
    engine = small_engine(counting())
    answer = ask(engine, {"model": "small", "n_predict": 20}, profiles=[Profile("small", n_ctx=24)])
    assert len(engine.requests) == 1 and answer["tokens_predicted"] == 4 and answer["truncated"] is True


@pytest.mark.parametrize(
    ("n_keep", "has_bos", "kept"), [(0, False, 0), (0, True, 1), (7, True, 8), (-1, True, 20), (500, False, N_CTX - 4)]
)
def test_how_much_is_kept(n_keep: int, has_bos: bool, kept: int) -> None:
    assert n_kept(n_keep, 20, N_CTX, has_bos=has_bos) == kept


def test_what_is_discarded_leaves_the_last_token() -> None:
    tokens = tuple(range(10))
    assert shifted(tokens, 2, 0) == (0, 1, 6, 7, 8, 9)
    assert shifted(tokens, 2, 3) == (0, 1, 5, 6, 7, 8, 9)
    assert shifted(tokens, 2, 99) == (0, 1, 9)
