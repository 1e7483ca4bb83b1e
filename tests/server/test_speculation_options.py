"""What the speculation options mean together: types, synthetic acceptance, limits, and what the engine gets."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from operator import mul
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.settings import MAX_TAIL
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.server.main import main
from pyjet.server.option_parser import OptionError, parse
from pyjet.server.speculation import NOT_VALID, describe, speculation_settings
from pyjet.server.startup import StartupError, check_mtp
from pyjet.server.synthetic_rates import check_rates, rates_for_length
from tests.server.scripted import tiny_model

MTP = ("--spec-type", "draft-mtp")


def settings(*arguments: str, **environment: str) -> SpeculationSettings:
    return speculation_settings(parse(arguments, environment).options)


def reason(*arguments: str) -> str:
    with pytest.raises(OptionError) as failure:
        parse(arguments, {})
    return str(failure.value).splitlines()[0]


def test_nothing_is_drafted_without_options() -> None:
    found = settings()
    assert found == SpeculationSettings() and not found.is_on


def test_types_accumulate() -> None:
    line = parse([*MTP, "--spec-type", "ngram-simple,ngram-mod"], {})
    assert line.options.spec_type == ["none", "draft-mtp", "ngram-simple", "ngram-mod"] and not line.warnings
    assert parse([*MTP, "--spec-type", "none"], {}).options.spec_type == ["none", "draft-mtp"]
    assert parse(["--spec-type", "draft-mtp,none"], {}).options.spec_type == ["none"]
    both = parse(["--spec-type", "ngram-simple"], {"LLAMA_ARG_SPEC_TYPE": "draft-mtp"}).options
    assert both.spec_type == ["none", "draft-mtp", "ngram-simple"]


@pytest.mark.parametrize("name", ["draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark"])
def test_types_with_a_draft_model_are_refused(name: str) -> None:
    assert "needs a separate draft model; use --spec-type draft-mtp" in reason("--spec-type", name)


@pytest.mark.parametrize("text", ["magic", "", ",", "draft_mtp"])
def test_unknown_types(text: str) -> None:
    assert reason("--spec-type", text).startswith('error while handling argument "--spec-type": ')


def test_mtp_settings() -> None:
    options = [*MTP, "--spec-draft-n-max", "4", "--spec-draft-n-min", "2", "--spec-draft-p-min", "0.25"]
    found = settings(*options, "--spec-draft-sampling", "probabilistic", "--spec-draft-vocab", "100", "--spec-fixed")
    assert (found.mtp, found.lookup, found.n_max, found.n_min, found.p_min) == (True, False, 4, 2, 0.25)
    assert (found.sampling, found.draft_vocab, found.is_adaptive) == ("probabilistic", 100, False)
    plain = settings(*MTP)
    assert (plain.n_max, plain.n_min, plain.draft_vocab, plain.is_adaptive) == (3, 0, 32768, True)
    assert settings(*MTP, "--spec-draft-vocab", "0").draft_vocab == 0
    assert not settings(*MTP, "--spec-draft-n-max", "0").is_on


def test_drafts_are_no_longer_than_a_step_verifies() -> None:
    line = parse([*MTP, "--spec-draft-n-max", "16", "--spec-draft-n-min", "8"], {})
    found = speculation_settings(line.options)
    assert (found.n_max, found.n_min) == (MAX_TAIL, MAX_TAIL)
    assert line.warnings == [f"--spec-draft-n-max 16: a step verifies at most {MAX_TAIL} drafts of a request"]
    [warning] = parse([*MTP, "--spec-draft-n-min", "5"], {}).warnings
    assert warning.endswith("no draft is used")


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        (["--spec-type", "ngram-simple"], (12, 48, 1)),
        (["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "5"], (5, 48, 1)),
        (["--spec-type", "ngram-map-k4v", "--spec-ngram-map-k4v-min-hits", "3"], (12, 48, 3)),
        (["--spec-type", "ngram-simple,ngram-map-k", "--spec-ngram-map-k-size-m", "60"], (12, 60, 1)),
        (["--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "16"], (16, 64, 1)),
        (["--spec-default"], (24, 64, 1)),
        (["--spec-type", "ngram-cache"], (2, 8, 1)),
        (["--spec-type", "ngram-simple,ngram-mod", "--spec-ngram-mod-n-max", "0"], (12, 48, 1)),
    ],
)
def test_lookup_settings(arguments: list[str], limits: tuple[int, int, int]) -> None:
    found = settings(*arguments)
    assert found.lookup and not found.mtp
    assert (found.lookup_min_match, found.lookup_size, found.lookup_min_hits) == limits
    assert found.n_max == MAX_TAIL, "the limit of MTP drafts is not that of lookups"


def test_what_the_log_says() -> None:
    both = settings("--spec-type", "draft-mtp,ngram-simple")
    assert describe(both) == (
        "drafts: up to 3 tokens of the MTP block and up to 7 tokens that followed the last 12 or more before, "
        "as many as pay"
    )
    fixed = settings("--spec-type", "ngram-cache", "--spec-fixed")
    assert describe(fixed) == (
        "drafts: up to 7 tokens that followed the last 2 or more before, always as many as there are"
    )
    assert describe(settings()) == "no drafts"


def test_short_lookups() -> None:
    assert settings("--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "2").n_max == 2
    assert settings("--spec-type", "draft-mtp,ngram-simple", "--spec-draft-n-max", "4").n_max == 4


def test_spec_default_sets_the_lengths_back() -> None:
    options = parse(["--spec-ngram-mod-n-match", "3", "--spec-default"], {}).options
    assert (options.spec_ngram_mod_n_match, options.spec_type) == (24, ["none", "ngram-mod"])


# synthetic acceptance


def test_rates_reach_the_engine_as_given() -> None:
    line = parse([*MTP, "--spec-draft-n-max", "2", "--spec-synth-rates", "0.8, 0.6"], {})
    found = speculation_settings(line.options)
    assert found.synth_rates == (0.8, 0.6) and not found.is_adaptive
    assert line.warnings == [NOT_VALID]
    assert settings(*MTP, "--spec-draft-n-max", "2", "--spec-synth-rates", "0.8,0.6", "--spec-adaptive").is_adaptive


def test_rates_behind_what_is_verified_are_dropped() -> None:
    rates = [0.75**i for i in range(1, 9)]
    found = settings(*MTP, "--spec-draft-n-max", "8", "--spec-synth-rates", ",".join(map(str, rates)))
    assert list(found.synth_rates) == rates[:MAX_TAIL] and found.n_max == MAX_TAIL


RATES = "--spec-synth-rates"
LENGTH = "--spec-synth-len"


@pytest.mark.parametrize(
    ("arguments", "option", "part"),
    [
        ([RATES, "0.5,0.5,0.5"], RATES, "name a kind of them with --spec-type"),
        ([LENGTH, "2"], LENGTH, "name a kind of them with --spec-type"),
        (["--spec-type", "none", LENGTH, "2"], LENGTH, "--spec-type"),
        ([*MTP, RATES, "0.8,0.6"], RATES, "3 rates are needed, one for each token of the longest draft, not 2"),
        (["--spec-type", "draft-mtp,ngram-simple", RATES, "0.5,0.5,0.5"], RATES, "48 rates are needed"),
        ([*MTP, RATES, "0.5,0.6,0.1"], RATES, "rates never increase"),
        ([*MTP, RATES, "1.5,0.6,0.1"], RATES, "between 0 and 1"),
        ([*MTP, RATES, "0.5,0.4,-0.1"], RATES, "between 0 and 1"),
        ([*MTP, RATES, "0.5,x,0.1"], RATES, 'expected a number, got "x"'),
        ([*MTP, RATES, "nan,nan,nan"], RATES, 'expected a number, got "nan"'),
        ([*MTP, RATES, "0.5/0.4/0.3"], RATES, "expected a number"),
        ([*MTP, RATES, "0.5,0.4,0.3", LENGTH, "2"], RATES, "give one of the two"),
        ([*MTP, LENGTH, "4.5"], LENGTH, "between 1 and 4"),
        ([*MTP, LENGTH, "0.5"], LENGTH, "at least 1"),
        ([*MTP, LENGTH, "-1"], LENGTH, "at least 1"),
        ([*MTP, LENGTH, "2tokens"], LENGTH, "expected a number"),
        ([*MTP, LENGTH, "2", "--spec-draft-n-max", "0"], LENGTH, "at least one token"),
    ],
)
def test_synthetic_acceptance_that_cannot_be(arguments: list[str], option: str, part: str) -> None:
    text = reason(*arguments)
    assert text.startswith(f'error while handling argument "{option}": ') and part in text


def test_bad_rates_end_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MTP, RATES, "0.5"]) == 1
    assert "3 rates are needed" in capsys.readouterr().err


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.floats(1, n + 1))))
def test_rates_of_a_mean_length(case: tuple[int, float]) -> None:
    n_max, length = case
    rates = rates_for_length(length, n_max, 7)
    check_rates(rates, n_max)
    assert 1 + sum(rates) == pytest.approx(length, abs=1e-6)
    ratio = rates[0]
    assert list(rates) == pytest.approx(list(accumulate([ratio] * n_max, mul)))


def test_a_mean_length_beyond_what_is_verified() -> None:
    assert rates_for_length(20.0, 48, 7) == (1.0,) * 7
    assert 1 + sum(rates_for_length(3.0, 48, 7)) == pytest.approx(3.0)


# models and caches


def test_drafts_of_a_model_without_an_mtp_block() -> None:
    model = tiny_model()
    without = replace(model, hyperparams=replace(model.hyperparams, n_nextn=0))
    options = parse(MTP, {}).options
    check_mtp(options, model)
    check_mtp(parse(["--spec-type", "ngram-simple"], {}).options, without)
    with pytest.raises(StartupError, match="has no MTP block to make drafts with") as failure:
        check_mtp(options, without)
    assert Path(model.path).name in str(failure.value)


def test_the_cache_of_the_mtp_block() -> None:
    assert parse(["-ctkd", "q8_0", "-ctk", "q8_0"], {}).warnings == []
    [warning] = parse(["-ctkd", "q8_0"], {}).warnings
    assert warning == "--spec-draft-type-k q8_0 has no effect: the MTP block shares the cache of type f16"
