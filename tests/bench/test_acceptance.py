"""Counts and prompts of bench.acceptance."""

from __future__ import annotations

from typing import Any

from bench.acceptance import Asker, by_kind, first_positions, table
from bench.acceptance_counts import Counts, counts_of_metrics
from bench.acceptance_prompts import all_prompts, edit_prompts, of_kind
from bench.report_speculation import acceptance_table, temperature_table
from pyjet.engine.counters import Counters
from pyjet.server.metrics import MetricsText
from tests.scripted_engine import ScriptedEngine
from tests.server.live import serving
from tests.server.scripted import make_service, said

COUNTS = Counts(drafts=10, drafted=30, accepted=15, positions=(9, 4, 2), tokens=25)


def test_counts_of_our_own_page() -> None:
    now = Counters(draft_tokens=30, draft_tokens_accepted=15, drafts=10, accepted_per_position=(9, 4, 2),
                   predicted_tokens=26)  # fmt: skip
    assert counts_of_metrics(MetricsText().render(now)) == Counts(10, 30, 15, (9, 4, 2))
    assert counts_of_metrics(MetricsText().render(Counters())) == Counts()


def test_counts_of_llama_servers_page() -> None:
    page = """# HELP llamacpp:spec_decode_num_drafts_total Speculative: Total speculative decoding verification steps
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total 26
llamacpp:spec_decode_num_draft_tokens_total 77
llamacpp:spec_decode_num_accepted_tokens_total 69
llamacpp:prompt_tokens_seconds 335.323
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 24
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 23
"""
    assert counts_of_metrics(page) == Counts(26, 77, 69, (24, 23))


def test_counts_add_up() -> None:
    assert COUNTS + Counts(1, 2, 1, (1,), 2) - Counts(1, 2, 1, (1,), 2) == COUNTS
    assert (COUNTS - Counts(positions=(4,))).positions == (5, 4, 2)


def test_figures_of_counts() -> None:
    assert COUNTS.figures() == {
        "tokens_per_step": 2.5, "accepted_per_step": 1.5, "tokens": 25, "accepted_share": 0.5,
        "accepted_at": [0.9, 0.4, 0.2],
    }  # fmt: skip
    assert Counts(tokens=5).figures() == {"tokens_per_step": 1.0, "accepted_per_step": 0.0, "tokens": 5}


def test_prompts() -> None:
    prompts = all_prompts(3, 4, 5)
    assert [len(of_kind(prompts, kind)) for kind in ("code", "chat", "edit")] == [3, 4, 5]
    assert len({str(prompt.body) for prompt in prompts}) == 12
    assert not all_prompts(0, 0, 0)
    for prompt in edit_prompts(5):
        source, _, head = prompt.body["prompt"].partition("# The same file with ")
        old, new = head.split(":\n\n")[0].split(" renamed to ")
        assert old in source and new not in source and new in head


def test_a_server_is_asked_and_counted() -> None:
    service = make_service(ScriptedEngine(said("one two three")), metrics=True)
    with serving(service) as port:
        found = by_kind(Asker(f"http://127.0.0.1:{port}"), all_prompts(1, 1, 1))
    assert set(found) == {"code", "chat", "edit", "all"}
    assert found["all"]["tokens"] == sum(found[kind]["tokens"] for kind in ("code", "chat", "edit")) > 0
    assert "accepted_at" not in found["all"], "nothing was drafted"


def record() -> dict[str, Any]:
    kinds = {kind: COUNTS.figures() for kind in ("code", "all")}
    temperatures = {"greedy": {t: COUNTS.figures() for t in ("0", "0.3", "0.7", "1")}}
    return {
        "sources": {"mtp": kinds, "lookup": {"all": Counts(tokens=9).figures()}}, "temperatures": temperatures,
        "llama_cpp": {"mtp": {"all": {**COUNTS.figures(), "accepted_at": [0.8]}}, "temperatures": temperatures},
        "model": "tiny", "prompts": "few", "device": "cpu", "date": "2026-01-01",
    }  # fmt: skip


def test_first_drafts_beside_llama_cpp() -> None:
    assert first_positions(record()) == {
        "first_draft_accepted_code": 0.9, "first_draft_accepted_all": 0.9, "llama_cpp_first_draft_accepted_all": 0.8,
        "first_draft_over_llama_cpp": 1.125,
    }  # fmt: skip
    alone = {key: value for key, value in record().items() if key != "llama_cpp"}
    assert "first_draft_over_llama_cpp" not in first_positions(alone)


def test_tables() -> None:
    assert "| pyjet, mtp | 2.50 (90%) |  |  | 2.50 (90%) |" in acceptance_table(record())
    assert "| pyjet, lookup |  |  |  | 1.00 |" in acceptance_table(record())
    assert "| llama.cpp, greedy | 90.0% | 90.0% | 90.0% | 90.0% |" in temperature_table(record())
    text = table(record())
    assert "pyjet mtp" in text and "llama.cpp greedy" in text
