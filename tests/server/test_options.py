"""The parser's rules: order, spelling, environment, messages, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyjet.server.main import main
from pyjet.server.option_parser import CommandLine, OptionError, parse
from pyjet.server.options import DEFAULT_SEED, ServerOptions


def options(*arguments: str, **environment: str) -> ServerOptions:
    return parse(arguments, environment).options


def failure(*arguments: str, **environment: str) -> str:
    with pytest.raises(OptionError) as error:
        parse(arguments, environment)
    return str(error.value)


def test_no_arguments_give_the_defaults() -> None:
    assert parse([], {}) == CommandLine()


def test_the_last_value_wins_with_a_warning() -> None:
    line = parse(["-c", "100", "--ctx-size", "200"], {})
    assert line.options.ctx_size == 200
    assert any("--ctx-size was given several times" in warning for warning in line.warnings)


def test_accumulating_options() -> None:
    result = options("--api-key", "a,b", "--api-key", "c", "-r", "x", "-r", "y", "-l", "1+2", "-l", "3-inf")
    assert result.api_keys == ["a", "b", "c"]
    assert result.reverse_prompt == ["x", "y"]
    assert result.logit_bias == [(1, 2.0), (3, float("-inf"))]
    assert options("--dry-sequence-breaker", "a", "--dry-sequence-breaker", "b").dry_sequence_breakers == ["a", "b"]
    assert options("--dry-sequence-breaker", "none").dry_sequence_breakers == []
    both = options("--override-kv", "a=int:1,b=bool:true", "--override-kv", "c=str:x y").override_kv
    assert both == {"a": 1, "b": True, "c": "x y"}


def test_underscores_are_dashes_in_long_names_only() -> None:
    assert options("--ctx_size", "7").ctx_size == 7
    assert options("--no_slots").slots is False
    assert failure("-n_gl", "1") == "error: invalid argument: -n_gl\n"


@pytest.mark.parametrize("argument", ["--foo", "--port=1", "-cnp", "--PORT", "--por", "file.gguf", "", "-"])
def test_unknown_arguments(argument: str) -> None:
    assert failure(argument) == f"error: invalid argument: {argument}\n"


def test_missing_value() -> None:
    lines = failure("--port").splitlines()
    assert lines[0] == 'error while handling argument "--port": expected value for argument'
    assert lines[1:3] == ["", "usage:"]
    assert lines[3].startswith("--port PORT")
    assert lines[-1] == "to show complete usage, run with -h"


@pytest.mark.parametrize(("text", "value"), [("12abc", 12), (" 7", 7), ("+3", 3), ("0x10", 0), ("1.9", 1)])
def test_integers_follow_stoi(text: str, value: int) -> None:
    assert options("-c", text).ctx_size == value


@pytest.mark.parametrize("text", ["abc", "", "--port", "99999999999999999999", "2147483648", "1" * 5000])
def test_bad_integers(text: str) -> None:
    assert failure("-c", text).startswith('error while handling argument "-c": ')


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--no-slots"], "slots", False),
        (["--slots"], "slots", True),
        (["-no-kvu"], "kv_unified", False),
        (["-s", "-1"], "seed", DEFAULT_SEED),
        (["--seed", "42"], "seed", 42),
        (["--host", "127.0.0.1,/tmp/x.sock"], "host", ["127.0.0.1", "/tmp/x.sock"]),
        (["-a", "b,a"], "alias", ["a", "b"]),
        (["--samplers", "Top-K;nucleus;foo;temp"], "samplers", ["top_k", "top_p", "temperature"]),
        (["--sampling-seq", "kzt"], "samplers", ["top_k", "temperature"]),
        (["-ngl", "99"], "gpu_layers", "99"),
        (["-ngl", "all"], "gpu_layers", "all"),
        (["-fa", "1"], "flash_attn", "on"),
        (["-rea", "off", "-rea", "auto"], "reasoning", "auto"),
        (["--device", "cpu"], "device", "cpu"),
        (["-dev", "none"], "device", "none"),
        (["--cpu-isa", "avx2"], "cpu_isa", "avx2"),
        (["-lv", "5"], "verbosity", 5),
        (["-fit", "off"], "fit", False),
        (["--api-prefix", "/a/b/"], "api_prefix", "/a/b"),
        (["-bs"], "backend_sampling", True),
        (["--agents", "64"], "parallel", 64),
        (["-np", "2", "--agents", "8"], "parallel", 8),
        (["--step-budget", "1.5"], "step_budget", 1.5),
    ],
)
def test_values(arguments: list[str], field: str, value: object) -> None:
    assert getattr(options(*arguments), field) == value


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "65536"],
        ["--sse-ping-interval", "-2"],
        ["--sleep-idle-seconds", "0"],
        ["-ctk", "q9"],
        ["--path", "/no/such/directory"],
        ["--slot-save-path", "/no/such/directory"],
        ["--api-key-file", "/no/such/file"],
        ["--ui-config", "[1]"],
        ["--chat-template-kwargs", "{bad"],
        ["--override-kv", "novalue"],
        ["--numa", "maybe"],
        ["--prio", "9"],
        ["--spec-type", "magic"],
        ["-l", "nonsense"],
        ["--temp", "warm"],
        ["--agents", "-2"],
        ["--agents", "many"],
        ["--agents", "257"],
        ["--step-budget", "1"],
        ["--step-budget", "nan"],
        ["--host", ","],
        ["--port", "0", "--host", "127.0.0.1,127.0.0.2"],
        ["--draft-max", "3"],
        ["--api-prefix", "v1"],
    ],
)
def test_bad_values(arguments: list[str]) -> None:
    assert failure(*arguments).startswith(f'error while handling argument "{arguments[0]}": ')


def test_more_slots_than_there_are() -> None:
    for name in ("--agents", "-np"):
        assert failure(name, "65").splitlines()[0] == (
            f'error while handling argument "{name}": 65 slots are more than this version runs at the same time; use '
            "at most 64, others queue"
        )


def test_what_only_the_pool_decides_has_no_effect() -> None:
    assert parse(["--cache-idle-slots", "-cram", "100", "-ctxcp", "3", "-cms", "0", "-sps", "0.5"], {}).warnings == []
    [warning] = parse(["--no-cache-idle-slots"], {}).warnings
    assert "--no-cache-idle-slots has no effect: prompts of idle slots move to host memory" in warning
    [warning] = parse(["--cache-reuse", "256"], {}).warnings
    assert "recurrent models cannot shift their cache" in warning


def test_escapes_in_stop_texts() -> None:
    assert options("-r", r"a\n\x41\q").reverse_prompt == ["a\nA\\q"]
    assert options("-r", r"a\n", "--no-escape").reverse_prompt == [r"a\n"]


# environment


def test_environment_and_its_override() -> None:
    line = parse(["-c", "5"], {"LLAMA_ARG_CTX_SIZE": "7", "LLAMA_ARG_PORT": "99"})
    assert (line.options.ctx_size, line.options.port) == (5, 99)
    assert line.warnings == [
        "warn: LLAMA_ARG_CTX_SIZE environment variable is set, but will be overwritten by command line argument -c"
    ]


WORDS = [("on", True), ("enabled", True), ("1", True), ("off", False), ("disabled", False), ("0", False)]


@pytest.mark.parametrize(("word", "value"), WORDS)
def test_boolean_words(word: str, value: bool) -> None:
    assert options(LLAMA_ARG_CORS_CREDENTIALS=word).cors_credentials is value
    assert options(LLAMA_ARG_ENDPOINT_METRICS=word).metrics is value


def test_negated_variable_counts_by_its_presence() -> None:
    assert options(LLAMA_ARG_NO_UI="").ui is False
    assert options(LLAMA_ARG_NO_JINJA="0").jinja is False


@pytest.mark.parametrize(("name", "text"), [("LLAMA_ARG_PORT", "x"), ("LLAMA_ARG_UI", "yes"), ("LLAMA_ARG_RPC", "a:1")])
def test_bad_variables(name: str, text: str) -> None:
    assert failure(**{name: text}).startswith(f'error while handling environment variable "{name}": ')


def test_keys_of_variable_option_and_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# comment\n\nfrom-file\n  spaced  \n")
    result = options("--api-key", "flag", "--api-key-file", str(path), LLAMA_API_KEY="env")
    assert result.api_keys == ["env", "flag", "from-file", "spaced"]


def test_other_variables() -> None:
    result = options(LLAMA_SERVER_SLOTS_DEBUG="1", LLAMA_MEDIA_MARKER="<m>", HF_TOKEN="secret", LLAMA_CACHE="/x")
    assert result.slots_debug and result.media_marker == "<m>"


# what ends at once


def test_version_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("version: ") and "(build 11434, commit " in err and err.count("\n") == 2


@pytest.mark.parametrize("name", ["-h", "--help", "--usage"])
def test_help_goes_to_stdout(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "----- sampling params -----" in out and "(env: LLAMA_ARG_PORT)" in out


def test_wrong_options_exit_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-h", "--foo"]) == 1
    assert capsys.readouterr().err == "error: invalid argument: --foo\n"


def test_lists_that_exit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cache-list"]) == 0
    assert main(["--completion-bash"]) == 0
    assert "complete -o default" in capsys.readouterr().out


def test_defaults_are_plain_json_values() -> None:
    fields = {name: value for name, value in vars(ServerOptions()).items() if name != "user_set"}
    json.dumps(fields)
