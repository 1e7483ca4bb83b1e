"""State endpoints, text utilities, the page, and what is switched off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from pyjet.engine.client import SlotView
from pyjet.engine.counters import Counters
from pyjet.engine.request import SamplingParams, Timings
from pyjet.server.metrics import MetricsText
from pyjet.server.timings import timings_json
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import ids, make_client, make_service, post, post_error, said, tiny_tokenizer


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    return make_client(ScriptedEngine(said("x")), tags=["fast"])


def test_models(client: FlaskClient) -> None:
    answer = client.get("/v1/models").get_json()
    assert client.get("/models").get_json()["models"] == answer["models"]
    assert answer["object"] == "list" and answer["models"][0]["name"] == "tiny"
    assert answer["models"][0]["capabilities"] == ["completion"]
    entry = answer["data"][0]
    assert (entry["id"], entry["aliases"], entry["tags"]) == ("tiny", ["tiny"], ["fast"])
    assert entry["owned_by"] == "llamacpp" and isinstance(entry["created"], int)
    meta = entry["meta"]
    assert meta["vocab_type"] == 2 and meta["n_ctx"] == 4096 and meta["ftype"] == "Q4_K - Medium"
    assert meta.keys() == {"vocab_type", "n_vocab", "n_ctx", "n_ctx_train", "n_embd", "n_params", "size", "ftype"}


PROPS = (
    "default_generation_settings total_slots model_alias model_ftype model_path modalities media_marker endpoint_slots "
    "endpoint_props endpoint_metrics ui ui_settings chat_template chat_template_caps bos_token eos_token build_info "
    "is_sleeping cors_proxy_enabled"
)


def test_props(client: FlaskClient) -> None:
    answer = client.get("/props").get_json()
    assert list(answer) == PROPS.split()
    assert answer["total_slots"] == 4 and answer["default_generation_settings"]["n_ctx"] == 4096
    assert "dry_sequence_breakers" not in answer["default_generation_settings"]["params"]
    assert answer["modalities"] == {"vision": False, "video": False, "audio": False}
    assert re.fullmatch(r"b11434-pyjet\S+", answer["build_info"])
    assert answer["eos_token"] == "<|im_end|>" and "<|im_start|>" in answer["chat_template"]
    assert answer["chat_template_caps"]["supports_tool_calls"] is True


def test_props_of_options() -> None:
    client = make_client(
        ScriptedEngine(said("x")), props=True, metrics=True, slots=False, ui_config={"a": 1}, media_marker="<m>"
    )
    answer = client.get("/props").get_json()
    assert (answer["endpoint_props"], answer["endpoint_metrics"], answer["endpoint_slots"]) == (True, True, False)
    assert answer["ui_settings"] == {"a": 1} and answer["media_marker"] == "<m>"
    assert client.post("/props", data=b"anything").get_json() == {"success": True}


def test_slots_never_used(client: FlaskClient) -> None:
    assert client.get("/slots").get_json() == [
        {"id": index, "n_ctx": 4096, "speculative": False, "is_processing": False} for index in range(4)
    ]


class BusyEngine(ScriptedEngine):
    """One slot that is in the middle of an answer."""

    def slots(self, *, with_tokens: bool = False) -> list[SlotView]:
        tokens: dict[str, Any] = {"prompt": tuple(ids("Hi")), "generated": tuple(ids("a\n"))} if with_tokens else {}
        sampling = SamplingParams(
            temperature=0.5, seed=7, samplers=("top_k", "temperature"), mirostat=2, dry_multiplier=0.5
        )
        return [
            SlotView(
                0, 4096, is_processing=True, id_task=3, request_id="r", n_prompt=5, n_tokens=6, n_prompt_processed=4,
                n_cached=1, n_decoded=2, n_remain=8, has_next_token=True, max_tokens=10, n_probs=1, sampling=sampling,
                **tokens,
            )
        ]  # fmt: skip


def test_slots_in_use() -> None:
    entry = make_client(BusyEngine(said("x"))).get("/slots").get_json()[0]
    assert entry["is_processing"] and entry["id_task"] == 3
    assert (entry["n_prompt_tokens"], entry["n_prompt_tokens_processed"], entry["n_prompt_tokens_cache"]) == (6, 4, 1)
    assert entry["next_token"] == [{"has_next_token": True, "has_new_line": False, "n_remain": 8, "n_decoded": 2}]
    assert (entry["params"]["temperature"], entry["params"]["seed"]) == (0.5, 7)
    assert (entry["params"]["mirostat"], entry["params"]["dry_multiplier"]) == (2, 0.5)
    assert entry["params"]["samplers"] == ["top_k", "temperature"] and entry["params"]["n_predict"] == 10
    assert "prompt" not in entry and "dry_sequence_breakers" not in entry["params"]


def test_slots_debug() -> None:
    entry = make_client(BusyEngine(said("x")), slots_debug=True).get("/slots").get_json()[0]
    assert (entry["prompt"], entry["generated"]) == ("Hi", "a\n")
    assert entry["next_token"][0]["has_new_line"] is True


def test_fail_on_no_slot(client: FlaskClient) -> None:
    assert client.get("/slots?fail_on_no_slot=1").status_code == 200
    answer = make_client(BusyEngine(said("x"))).get("/slots?fail_on_no_slot=1")
    assert answer.status_code == 503 and answer.get_json()["error"]["message"] == "no slot available"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/metrics", 501, "This server does not support metrics endpoint. Start it with `--metrics`"),
        ("POST", "/props", 501, "This server does not support changing global properties. Start it with `--props`"),
        (
            "POST",
            "/slots/1?action=erase",
            501,
            "This server does not support slots action. Start it with `--slot-save-path`",
        ),
        ("POST", "/v1/embeddings", 501, "This server does not support embeddings. Start it with `--embeddings`"),
        ("POST", "/rerank", 501, "This server does not support reranking. Start it with `--reranking`"),
        ("POST", "/v1/audio/transcriptions", 501, "The current model does not support audio input."),
        ("POST", "/v1/systemone", 501, "This model is not a decision model"),
        ("GET", "/tools", 403, "this feature is disabled"),
        ("POST", "/cors-proxy", 403, "this feature is disabled"),
        ("POST", "/models/load", 404, "File Not Found"),
    ],
)
def test_what_is_switched_off(client: FlaskClient, method: str, path: str, status: int, message: str) -> None:
    answer = client.open(path, method=method, data=b"{}")
    assert answer.status_code == status and answer.get_json()["error"]["message"] == message


def test_slots_switched_off() -> None:
    answer = make_client(ScriptedEngine(said("x")), slots=False).get("/slots")
    assert answer.status_code == 501
    assert answer.get_json()["error"]["message"].endswith("slots endpoint. Start it with `--slots`")


def test_lora_adapters(client: FlaskClient) -> None:
    assert client.get("/lora-adapters").get_json() == []
    assert client.post("/lora-adapters", data=b'[{"id":5,"scale":1}]').get_json() == {"success": True}
    status, error = post_error(client, "/lora-adapters", {})
    assert status == 400 and error["message"] == "Request body must be an array"


# metrics


def test_metrics_page() -> None:
    service = make_service(ScriptedEngine(said("x")), metrics=True)
    client = make_client(ScriptedEngine(said("x")), metrics=True)
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
    assert abs(int(answer.headers["Process-Start-Time-Unix"]) - service.started_at) < 60
    assert "# TYPE llamacpp:n_tokens_max counter\n" in answer.get_data(as_text=True)


def test_metrics_values_and_rates() -> None:
    page = MetricsText()
    now = Counters(
        prompt_tokens=100, prompt_seconds=0.5338581, predicted_tokens=12, predicted_tokens_timed=10,
        predicted_seconds=2.0, n_decode=4, n_busy_slots_sum=6, accepted_per_position=(11, 3),
    )  # fmt: skip
    text = page.render(now)
    assert "\nllamacpp:prompt_seconds_total 0.533858\n" in text
    assert "\nllamacpp:predicted_tokens_seconds 5\n" in text
    assert "\nllamacpp:n_busy_slots_per_decode 1.5\n" in text
    assert 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 3\n' in text
    again = page.render(now)
    assert "\nllamacpp:predicted_tokens_seconds 0\n" in again and "\nllamacpp:tokens_predicted_total 12\n" in again
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \S+ .+|\S+ \S+", line)


def test_metrics_of_our_own() -> None:
    now = Counters(
        prompt_tokens=300, prompt_tokens_cached=900, prefix_hits=5, requests_finished=7, queue_seconds=1.25,
        first_token_seconds=2.5, swaps_out=2, swaps_in=1, swap_seconds=0.125, pages_cached=11, checkpoints=3,
        host_bytes=4096,
    )  # fmt: skip
    text = MetricsText().render(now)
    for line in (
        "prefix_cache_hit_ratio 0.75", "prefix_cache_hits_total 5", "requests_finished_total 7",
        "queue_seconds_total 1.25", "time_to_first_token_seconds_total 2.5", "swaps_out_total 2", "swaps_in_total 1",
        "swap_seconds_total 0.125", "pages_cached 11", "checkpoints 3", "host_memory_bytes 4096",
    ):  # fmt: skip
        assert f"\npyjet:{line}\n" in text
    assert "\npyjet:prefix_cache_hit_ratio 0\n" in MetricsText().render(Counters())


def test_timings_of_our_own() -> None:
    timings = timings_json(Timings(cache_n=2, prompt_n=3, prompt_ms=40.0, predicted_n=1, queue_ms=5.0))
    assert (timings["queue_ms"], timings["ttft_ms"]) == (5.0, 45.0)
    assert "ttft_ms" not in timings_json(Timings(prompt_n=3, prompt_ms=40.0)), "no token yet"


# text


def test_tokenize(client: FlaskClient) -> None:
    text = "Hello <|im_end|>é"
    assert post(client, "/tokenize", {"content": text}) == {"tokens": ids(text)}
    plain = post(client, "/tokenize", {"content": text, "parse_special": False})["tokens"]
    assert plain == tiny_tokenizer().encode(text, parse_special=False) != ids(text)
    assert post(client, "/tokenize", {}) == {"tokens": []}
    assert post(client, "/tokenize", {"content": ["Hello", 5, " x"]})["tokens"] == [*ids("Hello"), 5, *ids(" x")]
    assert post(client, "/tokenize", {"content": "a", "with_pieces": 1})["tokens"] == ids("a")


def test_pieces(client: FlaskClient) -> None:
    pieces = post(client, "/tokenize", {"content": "Hi 🤖", "with_pieces": True})["tokens"]
    joined = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert joined.decode() == "Hi 🤖"


def test_detokenize(client: FlaskClient) -> None:
    assert post(client, "/detokenize", {"tokens": ids("Hello é 🤖")}) == {"content": "Hello é 🤖"}
    assert post(client, "/detokenize", {}) == {"content": ""}
    for tokens in ([-1], [10**9], [tiny_tokenizer().n_vocab]):
        assert post_error(client, "/detokenize", {"tokens": tokens}) == (
            400,
            {"code": 400, "message": "Prompt contains invalid tokens", "type": "invalid_request_error"},
        )


@pytest.mark.parametrize("body", [{"content": 5}, {"content": {"a": 1}}, {"content": ["a", None]}])
def test_wrong_content(client: FlaskClient, body: dict[str, Any]) -> None:
    status, error = post_error(client, "/tokenize", body)
    assert status == 400 and "type_error.302" in error["message"]


def test_apply_template(client: FlaskClient) -> None:
    answer = post(client, "/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})
    assert answer["prompt"].startswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert post_error(client, "/apply-template", {})[0] == 400


# the page


def test_page(client: FlaskClient) -> None:
    answer = client.get("/")
    assert "<!doctype html>" in answer.get_data(as_text=True)
    assert answer.headers["Cache-Control"] == "no-cache"
    assert client.get("/", headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304


def test_no_page() -> None:
    client = make_client(ScriptedEngine(said("x")), ui=False)
    assert client.get("/").status_code == client.get("/manifest.webmanifest").status_code == 404
    assert "unregister" in client.get("/sw.js").get_data(as_text=True)


def test_own_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "index.html").write_text("mine")
    (root / "sub" / "a.txt").write_text("text")
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    client = make_client(ScriptedEngine(said("x")), path=str(root))
    assert client.get("/").get_data() == b"mine"
    assert client.get("/sub/a.txt").get_data() == b"text"
    assert client.get("/health").get_json() == {"status": "ok"}
    for path in ("/../secret", "/sub/../../secret", "/link", "/sub", "/none", "/%2e%2e/secret"):
        assert client.get(path).status_code == 404, path


def test_unexpected_failures_are_500_with_a_message() -> None:
    class BrokenEngine(ScriptedEngine):
        def counters(self) -> Counters:
            raise RuntimeError("boom")

    answer = make_client(BrokenEngine(Script([1])), metrics=True).get("/metrics")
    assert answer.status_code == 500
    assert answer.get_json()["error"] == {
        "code": 500,
        "message": "internal error: RuntimeError: boom",
        "type": "server_error",
    }
