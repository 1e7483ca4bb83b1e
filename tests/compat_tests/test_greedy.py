"""Where greedy answers part, the bound for it, and small dense models against llama.cpp."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.dense_shapes import DENSE_PRESETS
from bench.make_synthetic_gguf import write_synthetic
from cli.llama_cpp import LlamaModel
from compat_tests.greedy import __main__ as command
from compat_tests.greedy.answers import OTHER_MODES, Job, llama_answer, llama_rows, pyjet_answer, run_job
from compat_tests.greedy.difference import Answer, Verdict, compare, first_difference, margin_noise
from compat_tests.greedy.prompts import Prompt, prompts
from compat_tests.greedy.report import largest_gap, own_share, record, sentence, table
from pyjet.assets import default_model_path
from pyjet.model.reader import load_model
from tests.support.peer import library_or_skip

THEIRS = np.array([[0, 3, 1], [4, 0, 0], [0, 1, 2]], dtype=np.float32)
IN_BATCHES = THEIRS + np.array([0, 0.25, 0], dtype=np.float32)


def answer(rows: np.ndarray) -> Answer:
    return Answer(rows.argmax(1).astype(np.int32), rows)


def verdict(ours: np.ndarray, other: np.ndarray = IN_BATCHES) -> Verdict:
    return Verdict([compare("code 1", answer(ours), answer(THEIRS), {"batch 8": other})])


def changed(row: int, token: int, value: float) -> np.ndarray:
    rows = THEIRS.copy()
    rows[row, token] = value
    return rows


def test_noise_is_how_far_the_two_best_logits_move_against_each_other() -> None:
    assert margin_noise(THEIRS, THEIRS + 5) == 0
    assert margin_noise(THEIRS, changed(2, 1, 1.75)) == 0.75
    assert margin_noise(THEIRS, changed(2, 0, 1.75)) == 0  # the third best


def test_equal_answers_have_no_difference() -> None:
    same = verdict(THEIRS * 2)
    assert (same.differences, same.same_share(), largest_gap(same)) == ([], 1.0, 0)


def test_a_difference_within_the_noise_is_rounding() -> None:
    found = verdict(changed(2, 1, 2.125))
    [difference] = found.differences
    assert (difference.position, difference.ours, difference.theirs) == (2, 1, 2)
    assert (difference.gap, difference.peer_gap) == (0.125, 1.0)
    assert (found.bound, found.beyond, found.same_share()) == (0.25, [], 0.0)


def test_a_difference_beyond_the_noise_is_a_miss() -> None:
    found = verdict(changed(2, 1, 2.5))
    assert found.beyond == found.differences != []
    assert "after 2 tokens" in sentence("file", found.beyond[0], found.bound)
    assert table({"file": found}).splitlines()[-1].split()[-1] == "1"
    assert record({"file": found}, 3, "avx2", 1.0)["results"][0]["beyond"] == 1


def test_a_gap_that_is_not_a_number_is_a_miss() -> None:
    assert verdict(changed(1, 2, float("nan"))).beyond


def test_an_answer_that_ends_early_differs_at_its_end() -> None:
    short = answer(changed(1, 2, 9)[:2])
    difference = first_difference("chat 1", short, answer(THEIRS))
    assert difference is not None and difference.position == 1


def test_llama_cpps_own_share_is_that_of_its_worst_mode() -> None:
    assert own_share(verdict(THEIRS, THEIRS)) == 1.0
    assert own_share(verdict(THEIRS, changed(0, 2, 5))) == 0.0


@pytest.mark.parametrize(("logit", "status", "told"), [(2.125, 0, "all bounds met"), (2.5, 1, "missed: tiny.gguf")])
def test_the_command_fails_beyond_the_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, logit: float, status: int, told: str
) -> None:
    (tmp_path / "tiny.gguf").touch()
    monkeypatch.setattr(command, "judge", lambda *_: verdict(changed(2, 1, logit)))
    out = tmp_path / "greedy.json"
    found = CliRunner().invoke(command.main, ["--model", str(tmp_path / "tiny.gguf"), "--out", str(out)])
    assert (found.exit_code, told in found.output) == (status, True), found.output
    assert json.loads(out.read_text())["results"][0]["beyond"] == status


def test_prompts_are_the_same_tokens_in_both_engines() -> None:
    library_or_skip()
    path = default_model_path()
    with LlamaModel(path) as llama:
        found = prompts(load_model(path), llama, 2)
    assert [prompt.name for prompt in found] == ["code 1", "code 2", "chat 1", "chat 2"]
    assert all(0 < len(prompt.tokens) <= 384 for prompt in found)


@pytest.fixture(scope="module", params=["micro-qwen3", "micro-llama"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    library_or_skip()
    path = tmp_path_factory.mktemp("greedy") / f"{request.param}.gguf"
    write_synthetic(path, replace(DENSE_PRESETS[request.param], n_vocab=600), type_name="F16", pool_bytes=1 << 20)
    return path


def prompt_of(seed: int) -> Prompt:
    return Prompt("random", np.random.default_rng(seed).integers(0, 600, 150).astype(np.int32))


def test_dense_models_answer_as_llama_cpp_does(file: Path) -> None:
    found = Verdict([run_job(Job(file, prompt_of(seed), 24)) for seed in range(3)])
    assert found.beyond == []
    assert found.same_share() == 1.0  # F16: no rounding to 8 bits
    assert all(c.n_tokens == 24 for c in found.comparisons)


def test_a_model_read_as_another_architecture_is_a_miss(file: Path) -> None:
    model = load_model(file)
    other = "qwen2" if model.hyperparams.arch == "llama" else "llama"  # the other kind of rope
    wrong = replace(model, hyperparams=replace(model.hyperparams, arch=other))
    comparisons = []
    with LlamaModel(file) as llama:
        for seed in range(3):
            prompt = prompt_of(seed)
            theirs = llama_answer(llama, prompt.tokens, 24, ())
            ours = pyjet_answer(wrong, prompt.tokens, 24, ())
            rows = {name: llama_rows(llama, prompt.tokens, theirs.tokens, *mode) for name, mode in OTHER_MODES.items()}
            comparisons.append(compare(prompt.name, ours, theirs, rows))
    assert Verdict(comparisons).beyond
