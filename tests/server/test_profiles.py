"""Profiles: their options, the limits that they set, and how clients see them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pyjet.server.option_parser import OptionError, parse
from pyjet.server.options import ServerOptions
from pyjet.server.profiles import NO_PROFILE, Profile, check_profiles, find_profile
from pyjet.server.startup import Startup, StartupError
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import ids, make_client, post, post_error, said

PLANNER = Profile("planner", n_ctx=300, max_tokens=20, priority=10)
CODER = Profile("coder", n_ctx=50)
TITLES = Profile("titles", max_tokens=8, priority=-5)
PROFILES = [PLANNER, CODER, TITLES]
TALK = Script(ids(" word"), repeat=True)


def asked(body: dict[str, Any], path: str = "/completion", **options: Any) -> tuple[Any, Any]:
    """The answer and what the engine was asked for."""
    engine = ScriptedEngine(TALK)
    answer = post(make_client(engine, profiles=PROFILES, **options), path, body)
    return answer, engine.requests[0]


# options


def test_given_one_by_one() -> None:
    line = parse(["--alias-profile", "qwen:32b:ctx=200000,max_tokens=8192,priority=10",
                  "--alias_profile", "titles: priority = -3"], {})  # fmt: skip
    assert line.options.profiles == [Profile("qwen:32b", 200000, 8192, 10), Profile("titles", priority=-3)]
    assert line.warnings == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the standard library reads TOML from Python 3.11 on")
def test_given_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text('[planner]\nctx = 200_000\npriority = 10\n\n["a.b"]\nmax_tokens = 5\n')
    options = parse(["--alias-profile", "x:ctx=9", "--alias-profiles", str(path)], {}).options
    assert options.profiles == [Profile("x", 9), Profile("planner", 200000, priority=10), Profile("a.b", max_tokens=5)]
    path.write_text("[planner]\nctx = true\n")
    with pytest.raises(OptionError, match=rf'{path}: profile "planner": ctx is a whole number, not "True"'):
        parse(["--alias-profiles", str(path)], {})
    path.write_text("planner = 3\n")
    with pytest.raises(OptionError, match='profile "planner" has no limits'):
        parse(["--alias-profiles", str(path)], {})
    path.write_text("[planner\n")
    with pytest.raises(OptionError, match=f'handling argument "--alias-profiles": {path}: '):
        parse(["--alias-profiles", str(path)], {})


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["planner"], "expected NAME:ctx=N,max_tokens=N,priority=N, got "),
        ([":ctx=5"], "expected NAME:ctx=N"),
        (["planner:"], 'profile "planner" has no limits; they are ctx, max_tokens, priority'),
        (["a:context=5"], 'profile "a": there is no "context", only ctx, max_tokens, priority'),
        (["a:ctx=200k"], 'profile "a": ctx is a whole number, not "200k"'),
        (["a:ctx"], 'profile "a": ctx is a whole number, not ""'),
        (["a:ctx=1"], 'profile "a": ctx is at least 2 and at most 2147483647, not 1'),
        (["a:max_tokens=0"], 'profile "a": max_tokens is at least 1'),
        (["a:ctx=5,ctx=6"], 'profile "a": ctx is given twice'),
        (["a:ctx=5", "a:ctx=6"], 'the profile "a" is given twice'),
    ],
)
def test_wrong_texts(texts: list[str], reason: str) -> None:
    with pytest.raises(OptionError) as failure:
        parse([word for text in texts for word in ("--alias-profile", text)], {})
    assert str(failure.value).startswith(f'error while handling argument "--alias-profile": {reason}')


def test_what_the_server_cannot_offer() -> None:
    check_profiles(PROFILES, ["tiny"], 300)
    with pytest.raises(ValueError, match='"coder" names both the model and a profile'):
        check_profiles(PROFILES, ["tiny", "coder"], 300)
    with pytest.raises(ValueError, match='profile "planner" has a context of 300 tokens, but a slot has 256; lower'):
        check_profiles(PROFILES, ["tiny"], 256)


def test_the_start_ends_before_an_engine_is_started() -> None:
    options = ServerOptions(device="cpu", ctx_size=512, parallel=1, profiles=[Profile("planner", n_ctx=513)])
    with pytest.raises(StartupError, match="513 tokens, but a slot has 512"):
        Startup(options).load()


# limits


@pytest.mark.parametrize("model", ["planner2", None, 5, ["planner"], {"planner": 1}, ""])
def test_other_names_have_no_limits(model: Any) -> None:
    assert find_profile(PROFILES, model) is NO_PROFILE


@pytest.mark.parametrize(
    ("wanted", "n_prompt", "limit"),
    [(-1, 10, 20), (5, 10, 5), (500, 10, 20), (-1, 290, 10), (500, 299, 1), (0, 10, 0)],
)
def test_answers_are_bounded(wanted: int, n_prompt: int, limit: int) -> None:
    assert PLANNER.bound(wanted, n_prompt) == limit
    assert NO_PROFILE.bound(wanted, n_prompt) == wanted


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "a"}),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_every_api_knows_profiles(path: str, body: dict[str, Any]) -> None:
    answer, request = asked({**body, "model": "planner"}, path)
    assert (request.max_tokens, request.priority) == (20, 10)
    assert answer["model"] == "tiny", "answers show the server's model id"
    _, request = asked({**body, "model": "planner", "max_tokens": 7, "priority": 3}, path)
    assert (request.max_tokens, request.priority) == (7, 3)
    _, request = asked({**body, "model": "tiny", "max_tokens": 30}, path)
    assert (request.max_tokens, request.priority) == (30, 0)


def test_the_servers_own_limit_counts_too() -> None:
    assert asked({"prompt": "a", "model": "planner"}, n_predict=3)[1].max_tokens == 3
    assert asked({"prompt": "a", "model": "titles"}, n_predict=100)[1].max_tokens == 8


def test_an_answer_that_fills_the_profile_is_truncated() -> None:
    prompt = [5] * 40
    full = asked({"prompt": prompt, "model": "coder"})[0]
    assert (full["tokens_predicted"], full["tokens_cached"]) == (10, 49)
    assert (full["stop_type"], full["truncated"]) == ("limit", True)
    short = asked({"prompt": prompt, "model": "coder", "n_predict": 9})[0]
    assert (short["tokens_predicted"], short["stop_type"], short["truncated"]) == (9, "limit", False)
    many = asked({"prompt": prompt, "model": "titles"})[0]
    assert (many["tokens_predicted"], many["truncated"]) == (8, False)


def test_prompts_that_are_too_long_for_the_profile() -> None:
    client = make_client(ScriptedEngine(said("x")), profiles=PROFILES)
    body = {"prompt": [5] * 50, "model": "coder"}
    for stream in (False, True):
        assert post_error(client, "/completion", {**body, "stream": stream}) == (
            400,
            {
                "code": 400,
                "message": "request (50 tokens) exceeds the available context size (50 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 50,
                "n_ctx": 50,
            },
        )
    assert post(client, "/completion", {**body, "model": "planner"})["content"] == "x"


# priority


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
def test_wrong_priorities(path: str) -> None:
    client = make_client(ScriptedEngine(said("x")))
    body = {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}
    status, error = post_error(client, path, {**body, "priority": "high"})
    assert (status, error["message"]) == (
        400,
        "Field 'priority': [json.exception.type_error.302] type must be number, but is string",
    )
    assert post_error(client, path, {**body, "priority": 2**31})[0] == 400


# models


def test_profiles_are_models() -> None:
    answer = make_client(ScriptedEngine(said("x")), profiles=PROFILES).get("/v1/models").get_json()
    assert [entry["name"] for entry in answer["models"]] == ["tiny", "planner", "coder", "titles"]
    tiny, *profiles = answer["data"]
    assert "max_tokens" not in tiny["meta"] and tiny["meta"]["n_ctx"] == 4096
    assert [(entry["id"], entry["aliases"]) for entry in profiles] == [(p.name, [p.name]) for p in PROFILES]
    limits = [(e["meta"]["n_ctx"], e["meta"]["max_tokens"], e["meta"]["priority"]) for e in profiles]
    assert limits == [(300, 20, 10), (50, -1, 0), (4096, 8, -5)]
    assert all(entry.keys() == tiny.keys() and entry["meta"].keys() > tiny["meta"].keys() for entry in profiles)
