"""The way of follow-ups to the engine: figures of one repetition, and a short run of the whole."""

from __future__ import annotations

import pytest

from bench.arrival import measure, summarise
from bench.load_client import Reply
from bench.priced_server import MILLISECONDS, calibrated, price
from pyjet.assets import default_model_path


def test_prices_are_stairs() -> None:
    assert price(64) == pytest.approx(0.026) and price(65) == price(96) == pytest.approx(0.045)
    assert price(513) == price(576) < price(577)
    prices = [price(rows) for rows in range(1, 1025)]
    assert prices == sorted(prices)
    assert all(seconds < price(rows) for rows, seconds in calibrated())
    assert len(calibrated()) == len(MILLISECONDS) - 1


def test_figures_of_one_repetition() -> None:
    replies = [
        Reply(10.000, [(10.300, 1)], prompt_tokens=900, cached_tokens=700),
        Reply(10.001, [(10.290, 1)], prompt_tokens=900, cached_tokens=700),
    ]
    steps = {"begin": [9.0, 10.02, 10.10, 10.31], "end": [9.9, 10.05, 10.28, 10.32]}
    found = summarise(replies, [9.5, 10.005, 10.015, 11.0], steps)
    expected = {
        "first_ms": 5, "last_ms": 15, "step_ms": 100, "ttft_ms": 300, "over_ms": 300 - 1e3 * price(400), "n_steps": 2,
    }  # fmt: skip
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("api", ["chat", "llama"])
def test_a_short_run(api: str) -> None:
    found = measure(api, default_model_path(), n_agents=2, n_context=400, n_new=20, n_messages=4, reps=1)
    assert set(found) == {f"arrival_{api}_{name}" for name in
                          ("first_ms", "last_ms", "step_ms", "ttft_ms", "over_ms", "n_steps")}  # fmt: skip
    assert 0 < found[f"arrival_{api}_first_ms"] <= found[f"arrival_{api}_last_ms"] < found[f"arrival_{api}_ttft_ms"]
    assert found[f"arrival_{api}_n_steps"] >= 1
