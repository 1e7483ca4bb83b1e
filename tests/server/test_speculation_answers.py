"""What answers, slots, metrics and the log say about drafts."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from pyjet.engine.counters import Counters
from pyjet.engine.request import FinishedEvent, Timings
from pyjet.server.app import create_app
from pyjet.server.metrics import MetricsText
from pyjet.server.request_log import request_line
from pyjet.server.timings import timings_json
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import eos, ids, make_client, make_service, post, said, stream

SPECULATING = {"spec_type": ["none", "draft-mtp", "ngram-simple"]}


def drafting(text: str = "one two three four") -> Script:
    return Script([*ids(text), eos()], batch=2, drafted=2, accepted=1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "x"}),
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
def test_timings_count_drafts_once_there_were_any(path: str, body: dict[str, Any]) -> None:
    timings = post(make_client(ScriptedEngine(drafting())), path, body)["timings"]
    assert timings["draft_n"] == 2 * timings["draft_n_accepted"] > 0
    assert list(timings)[8:13] == ["predicted_per_second", "draft_n", "draft_n_accepted", "queue_ms", "ttft_ms"]
    timings = post(make_client(ScriptedEngine(said("one two three"))), path, body)["timings"]
    assert "draft_n" not in timings and "draft_n_accepted" not in timings


def test_streamed_timings_count_drafts_so_far() -> None:
    client = make_client(ScriptedEngine(drafting()))
    events = stream(client, "/completion", {"prompt": "x", "timings_per_token": True})
    counts = [event["timings"].get("draft_n", 0) for event in events]
    assert counts[0] == 0 and counts == sorted(counts) and counts[-1] > 2
    assert all(("draft_n" in e["timings"]) == ("draft_n_accepted" in e["timings"]) for e in events)


def test_rejected_drafts_are_shown_as_zero() -> None:
    timings = timings_json(Timings(prompt_n=1, predicted_n=2, draft_n=3))
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (3, 0)


def test_types_in_settings_props_and_slots() -> None:
    client = make_client(ScriptedEngine(said("x")), **SPECULATING)
    names = "none,draft-mtp,ngram-simple"
    assert post(client, "/completion", {"prompt": "x"})["generation_settings"]["speculative.types"] == names
    params = client.get("/props").get_json()["default_generation_settings"]["params"]
    assert params["speculative.types"] == names
    assert all(slot["speculative"] is True for slot in client.get("/slots").get_json())
    plain = make_client(ScriptedEngine(said("x"))).get("/slots").get_json()
    assert all(slot["speculative"] is False for slot in plain)


def test_request_fields_of_speculation_are_ignored() -> None:
    engine = ScriptedEngine(said("x"))
    client = make_client(engine, **SPECULATING)
    body = {"prompt": "x", "speculative.p_min": 0.0, "speculative.types": "none", "speculative": {"n_max": "many"}}
    assert post(client, "/completion", body)["generation_settings"]["speculative.types"].startswith("none,draft-mtp")


def test_metrics_of_drafts() -> None:
    now = Counters(
        draft_tokens=30, draft_tokens_accepted=14, drafts=10, accepted_per_position=(9, 5, 0),
        draft_tokens_mtp=24, draft_tokens_mtp_accepted=11, draft_tokens_lookup=6, draft_tokens_lookup_accepted=3,
    )  # fmt: skip
    text = MetricsText().render(now)
    for line in (
        "llamacpp:spec_decode_num_draft_tokens_total 30",
        "llamacpp:spec_decode_num_accepted_tokens_total 14",
        "llamacpp:spec_decode_num_drafts_total 10",
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 0',
        'pyjet:draft_tokens_total{source="mtp"} 24',
        'pyjet:draft_tokens_total{source="lookup"} 6',
        'pyjet:draft_tokens_accepted_total{source="mtp"} 11',
        'pyjet:draft_tokens_accepted_total{source="lookup"} 3',
    ):
        assert f"\n{line}\n" in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)), "one TYPE line for each name"


def test_metrics_without_drafts_have_no_positions() -> None:
    text = MetricsText().render(Counters())
    assert "position=" not in text and "pyjet:draft_tokens" not in text
    assert "\nllamacpp:spec_decode_num_drafts_total 0\n" in text


def test_the_line_of_a_request() -> None:
    timings = Timings(
        cache_n=80, prompt_n=40, prompt_ms=12.34, predicted_n=21, predicted_ms=200.0, draft_n=18, draft_n_accepted=9
    )
    assert request_line(FinishedEvent("r", "eos", 2, timings)) == (
        "slot 2: eos; prompt 40 tokens and 80 reused in 12.3 ms; answer 21 tokens, 100.0 tokens/s; "
        "drafts 9 of 18 right (50%), 1.75 tokens a step"
    )
    plain = request_line(FinishedEvent("r", "cancelled", -1, Timings()))
    assert plain == "slot -1: cancelled; prompt 0 tokens in 0.0 ms; answer 0 tokens"


def test_every_request_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    service = make_service(ScriptedEngine(drafting()))
    with caplog.at_level(logging.INFO, logger="pyjet.server.generation"):
        create_app(service, service.options).test_client().post("/completion", data=json.dumps({"prompt": "x"}))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("slot ") and "drafts " in line
