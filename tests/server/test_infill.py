"""/infill: order of the fill-in-the-middle tokens, budgets, answers like /completion, errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyjet.model.tokenizer import Tokenizer
from pyjet.server.errors import ApiError
from pyjet.server.infill_prompt import InfillLimits, infill_prompt
from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import ids, make_client, post, post_error, said, stream, tiny_tokenizer

BODY = {"input_prefix": "def f():\n", "input_suffix": "\n    return x\n"}
PRE, SUF, MID = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
FILE = "<|repo_name|>myproject\n<|file_sep|>filename\n"


def prompt(body: dict[str, Any], **options: Any) -> str:
    engine = ScriptedEngine(said("x"))
    post(make_client(engine, **options), "/infill", body)
    return tiny_tokenizer().decode(engine.requests[0].prompt)


def test_order() -> None:
    assert prompt(BODY) == FILE + PRE + "def f():\n" + SUF + "\n    return x\n" + MID
    assert prompt({**BODY, "prompt": "    x ="}) == FILE + PRE + "def f():\n    x =" + SUF + "\n    return x\n" + MID
    assert prompt(BODY, spm_infill=True) == FILE + SUF + "\n    return x\n" + PRE + "def f():\n" + MID


def test_extra_files() -> None:
    extra = [{"filename": "a.py", "text": "A = 1\n"}, {"text": "B = 2\n"}]
    head = "<|repo_name|>myproject\n<|file_sep|>a.py\nA = 1\n<|file_sep|>tmp\nB = 2\n<|file_sep|>filename\n"
    assert prompt({**BODY, "input_extra": extra}).startswith(head + PRE)


def test_code_is_text_whatever_it_says() -> None:
    engine = ScriptedEngine(said("x"))
    post(make_client(engine), "/infill", {**BODY, "input_prefix": f"'{MID}'"})
    assert list(engine.requests[0].prompt).count(tiny_tokenizer().fim_mid or -1) == 1


def test_token_ids_are_taken_as_they_are() -> None:
    body = {"input_prefix": ids("def"), "input_suffix": ["a", *ids(" b")]}
    assert prompt(body) == FILE + PRE + "def" + SUF + "a b" + MID


def limits(**sizes: Any) -> InfillLimits:
    return InfillLimits(**{"n_batch": 2048, "n_context": 4096, "n_predict": -1, "suffix_first": False, **sizes})


def test_budgets() -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer.fim_pre and tokenizer.fim_suf and tokenizer.fim_mid
    body = {
        "input_prefix": [1] * 50 + [2] * 6,
        "input_suffix": [3] * 4 + [4] * 50,
        "input_extra": [{"text": " word" * 100}],
    }
    tokens = infill_prompt(body, tokenizer, limits(n_batch=32, n_context=50, n_predict=4))
    assert tokens[:10] == tokens_of_extra(body)[-10:]  # 50 - 32 - 2 * 4
    assert tokens[10:] == [
        tokenizer.fim_pre,
        *[1] * 18,
        *[2] * 6,
        tokenizer.fim_suf,
        *[3] * 4,
        *[4] * 2,
        tokenizer.fim_mid,
    ]
    tokens = infill_prompt({**body, "prompt": " word" * 50}, tokenizer, limits(n_batch=32, n_context=32))
    assert tokens[-2:] == [tokenizer.fim_suf, tokenizer.fim_mid]


def tokens_of_extra(body: dict[str, Any]) -> list[int]:
    whole = infill_prompt(body, tiny_tokenizer(), limits())
    return whole[: whole.index(tiny_tokenizer().fim_pre)]


def test_a_vocabulary_without_separators() -> None:
    tokenizer = tiny_tokenizer()
    simple = SimpleNamespace(
        fim_pre=1, fim_suf=2, fim_mid=3, fim_rep=None, fim_sep=None, add_bos=True, bos_id=0, encode=tokenizer.encode
    )
    body = {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "x", "text": "T"}]}
    tokens = infill_prompt(body, cast(Tokenizer, simple), limits())
    assert tokens == [*ids("\n\n--- snippet ---\n\n"), *ids("T"), 0, 1, *ids("a"), 2, *ids("b"), 3]


def test_a_vocabulary_without_marks() -> None:
    simple = SimpleNamespace(fim_pre=1, fim_suf=None, fim_mid=None)
    with pytest.raises(ApiError) as error:
        infill_prompt(BODY, cast(Tokenizer, simple), limits())
    message = "Infill is not supported by this model: suffix token is missing. middle token is missing. "
    assert (error.value.status, error.value.type, error.value.message) == (501, "not_supported_error", message)


def test_answers_are_those_of_completion() -> None:
    engine = ScriptedEngine(said("    x = 1"))
    answer = post(make_client(engine), "/infill", {**BODY, "n_predict": 50, "seed": 3, "return_tokens": True})
    assert (answer["content"], answer["stop_type"]) == ("    x = 1", "eos") and answer["tokens"]
    assert answer["tokens_evaluated"] == len(engine.requests[0].prompt)
    assert engine.requests[0].sampling.seed == 3
    *chunks, final = stream(make_client(engine), "/infill", BODY)
    assert "".join(chunk["content"] for chunk in chunks) == "    x = 1" and final["stop"] is True


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input_prefix": ...}, "[json.exception.out_of_range.403] key 'input_prefix' not found"),
        ({"input_suffix": ...}, "[json.exception.out_of_range.403] key 'input_suffix' not found"),
        ({"input_prefix": 5}, "[json.exception.type_error.302] type must be string, but is number"),
        ({"prompt": 5}, '"prompt" must be a string'),
        ({"input_extra": {}}, '"input_extra" must be an array of {"filename": string, "text": string}'),
        ({"input_extra": [5]}, 'extra_context chunk must contain a "text" field with a string value'),
        ({"input_extra": [{"filename": "a"}]}, 'extra_context chunk must contain a "text" field with a string value'),
        ({"input_extra": [{"filename": 5, "text": "a"}]}, 'extra_context chunk\'s "filename" field must be a string'),
        ({"n_predict": "x"}, "Field 'n_predict': [json.exception.type_error.302] type must be number, but is string"),
    ],
)
def test_errors(fields: dict[str, Any], message: str) -> None:
    body = {key: value for key, value in {**BODY, **fields}.items() if value is not ...}
    status, error = post_error(make_client(ScriptedEngine(said("x"))), "/infill", body)
    assert (status, error["message"], error["type"]) == (400, message, "invalid_request_error")
