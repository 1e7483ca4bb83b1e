"""All sampler chains over HTTP with the real engine: seeds, probabilities, what is shown of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from pyjet.engine.speculation_settings import SpeculationSettings
from tests.server.live import serving
from tests.server.real import has_library, tiny_engine, tiny_service

pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")

CHAINS: dict[str, dict[str, Any]] = {
    "default": {},
    "xtc": {"xtc_probability": 0.7, "xtc_threshold": 0.05},
    "dry": {"dry_multiplier": 5, "dry_allowed_length": 0, "dry_sequence_breakers": ["\n", "def "]},
    "top_n_sigma": {"top_n_sigma": 1.5, "top_k": 0},
    "typical": {"typical_p": 0.5},
    "dynamic temperature": {"temperature": 1.2, "dynatemp_range": 1.0, "dynatemp_exponent": 0.5},
    "mirostat": {"mirostat": 1, "mirostat_tau": 3},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 3},
    "adaptive_p": {"samplers": ["top_k", "min-p", "adaptive_p"], "adaptive_target": 0.3},
    "infill": {"samplers": ["top_k", "top_p", "infill"], "top_k": 10, "temperature": 1.0, "ignore_eos": True},
    "letters": {"samplers": "edskypmxt", "repeat_penalty": 1.2, "xtc_probability": 0.5},
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with tiny_engine() as engine, serving(tiny_service(engine)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def drafting_url() -> Iterator[str]:
    drafts = SpeculationSettings(mtp=True, lookup=True, n_max=3, adaptive=False)
    with tiny_engine(speculation=drafts) as engine, serving(tiny_service(engine)) as port:
        yield f"http://127.0.0.1:{port}"


def complete(url: str, chain: dict[str, Any], **more: Any) -> Any:
    body = {"prompt": "def add(a, b):\n    return", "n_predict": 24, "seed": 11, "temperature": 1.0, **chain, **more}
    response = requests.post(f"{url}/completion", json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("name", CHAINS)
def test_a_seed_gives_the_same_text_and_drafts_change_nothing(url: str, drafting_url: str, name: str) -> None:
    answer = complete(url, CHAINS[name], return_tokens=True)
    assert complete(url, CHAINS[name], return_tokens=True)["tokens"] == answer["tokens"]
    assert complete(drafting_url, CHAINS[name], return_tokens=True)["tokens"] == answer["tokens"]
    others = [complete(url, CHAINS[name], seed=seed)["content"] for seed in (1, 2, 3)]
    assert len({answer["content"], *others}) > 1


@pytest.mark.parametrize("name", CHAINS)
def test_probabilities(url: str, name: str) -> None:
    """Raw ones do not depend on the chain; those after it belong to what it left."""
    raw = complete(url, CHAINS[name], n_probs=5)["completion_probabilities"]
    after = complete(url, CHAINS[name], n_probs=5, post_sampling_probs=True)["completion_probabilities"]
    assert [entry["id"] for entry in raw] == [entry["id"] for entry in after]
    for entry in raw:
        assert len(entry["top_logprobs"]) == 5
        assert all(each["logprob"] >= entry["logprob"] - 1e-5 for each in entry["top_logprobs"][:1])
    for entry in after:
        probs = [each["prob"] for each in entry["top_probs"]]
        assert 1 <= len(probs) <= 5 and probs == sorted(probs, reverse=True) and 0 < entry["prob"] <= 1
        assert sum(probs) <= 1 + 1e-5 and probs[0] >= entry["prob"]


def test_chats_have_log_probabilities_with_any_chain(url: str) -> None:
    body = {
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "seed": 1, "logprobs": True,
        "top_logprobs": 3, **CHAINS["mirostat 2"],
    }  # fmt: skip
    response = requests.post(f"{url}/v1/chat/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    entries = response.json()["choices"][0]["logprobs"]["content"]
    assert entries and all(len(entry["top_logprobs"]) == 3 for entry in entries)


def test_settings_show_what_was_asked_for(url: str) -> None:
    asked = {**CHAINS["dry"], **CHAINS["xtc"], "mirostat_eta": 0.5, "samplers": ["dry", "xtc", "temperature"]}
    shown = complete(url, asked)["generation_settings"]
    for field, value in asked.items():
        assert shown[field] == (pytest.approx(value) if isinstance(value, float) else value)
    defaults = requests.get(f"{url}/props", timeout=10).json()["default_generation_settings"]["params"]
    assert defaults["mirostat"] == 0 and defaults["adaptive_target"] == -1.0


def test_penalties_that_leave_nothing_are_an_error_and_others_go_on(url: str) -> None:
    body = {"prompt": "a b a b a", "dry_multiplier": -3e38, "dry_base": 3e38, "dry_allowed_length": 0, "n_predict": 4}
    response = requests.post(f"{url}/completion", json=body, timeout=60)
    assert response.status_code >= 400 and "no token can be chosen" in response.json()["error"]["message"]
    assert complete(url, {})["tokens_predicted"] == 24
