"""KL statistics, the bound and the table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from compat_tests.kl.bound import KvResult, Verdict, judge, misses
from compat_tests.kl.divergence import Sample, compare, log_softmax, pool, stack
from compat_tests.kl.pyjet_logits import same_bits
from compat_tests.kl.report import f16_note, ratios, record, save, table, without_folder

MODES = ("single", "batch 8")


def sample(scale: float, *, seed: int = 0, same: bool = True) -> Sample:
    """Twelve windows whose rows are about `scale` nats apart."""
    kld = scale * np.random.default_rng(seed).exponential(size=(12, 50))
    return Sample(kld, np.full(kld.shape, same))


def verdict(weights: str, ours: Sample, own: Sample, *, paths_equal: bool = True) -> Verdict:
    return judge(weights, [result(ours, own, paths_equal=paths_equal)])[0]


def result(ours: Sample, own: Sample, *, kv_type: str = "f16", paths_equal: bool = True) -> KvResult:
    return KvResult(kv_type, {MODES: own}, dict.fromkeys(MODES, ours), paths_equal)


def test_kl_of_known_distributions() -> None:
    base = np.log(np.array([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]], dtype=np.float32))
    other = np.log(np.array([[0.25, 0.25, 0.5], [0.2, 0.3, 0.5]], dtype=np.float32)) + 3
    expected = 0.5 * np.log(2) + 0.25 * np.log(0.5)
    found = compare(log_softmax(base), log_softmax(other))
    assert found.kld[0] == pytest.approx([expected, 0], abs=1e-6)
    assert found.same.tolist() == [[False, True]]
    figures = found.figures()
    assert figures.max == pytest.approx(expected, abs=1e-6)
    assert figures.top1 == 0.5


def test_samples_join_windows_and_comparisons() -> None:
    one, two = sample(1.0), sample(1.0, seed=1)
    assert stack([one, two]).kld.shape == (24, 50)
    both = pool([one, two])
    assert both.kld.shape == (12, 100)
    assert both.figures().mean == pytest.approx((one.kld.mean() + two.kld.mean()) / 2)
    assert both.figures(np.array([3, 3])).max == max(one.kld[3].max(), two.kld[3].max())


def test_another_sample_of_the_same_level_is_within_the_bound() -> None:
    assert misses(verdict("Q8_0", sample(1e-4, seed=1), sample(1e-4))) == []
    assert misses(verdict("Q8_0", sample(5e-5, seed=1), sample(1e-4))) == []


def test_a_higher_level_is_a_miss() -> None:
    found = misses(verdict("Q8_0", sample(1.5e-4, seed=1), sample(1e-4)))
    assert [sentence.split(" is ")[0] for sentence in found][:2] == ["Q8_0, f16 KV: mean", "Q8_0, f16 KV: median"]
    assert "standard error" in found[0]


def test_fewer_equal_top_tokens_are_a_miss() -> None:
    found = misses(verdict("Q8_0", sample(1e-4, same=False), sample(1e-4)))
    assert [sentence.split(" is ")[0] for sentence in found] == ["Q8_0, f16 KV: top1"]


def test_windows_are_the_unit_of_resampling() -> None:
    """A difference that only one window shows has a large error; rows taken as independent would hide that."""
    kld = sample(1e-4).kld.copy()
    kld[0] *= 3
    assert misses(verdict("Q8_0", Sample(kld, kld > 0), sample(1e-4))) == []


def test_own_figures_are_the_worst_of_a_file() -> None:
    none, level = sample(0.0), sample(1e-4)
    alone = judge("Q8_0", [result(level, none, kv_type="q8_0")])
    assert misses(alone[0]) != []
    beside = judge("Q8_0", [result(level, level), result(level, none, kv_type="q8_0")])
    assert [v.kv_type for v in beside] == ["f16", "q8_0"]
    assert misses(beside[1]) == []


def test_the_nudged_file_counts_for_its_kv_type_only() -> None:
    low, level, none = sample(1e-4), sample(1.5e-4), sample(0.0)
    alone = KvResult("q8_0", {}, {"batch 512": level}, True, nudged=level)
    f16, q8_0 = judge("Q8_0", [result(level, low), alone])
    assert (f16.nudged, q8_0.nudged) == (False, True)
    assert f16.own == low.figures()
    assert q8_0.own == level.figures()
    assert misses(f16) != []
    assert misses(q8_0) == []
    lower = KvResult("q8_0", {}, {"batch 512": low}, True, nudged=none)
    assert judge("Q8_0", [result(low, low), lower])[1].own == low.figures()


def test_judging_twice_gives_the_same() -> None:
    first, second = (verdict("Q8_0", sample(1e-4, seed=1), sample(1e-4)) for _ in range(2))
    assert np.array_equal(first.standard_error, second.standard_error)


def test_f16_has_a_fixed_bound_on_the_mean() -> None:
    fits = verdict("F16", sample(9e-5), sample(1e-6))
    assert misses(fits) == []
    assert "f16 KV not in mean, median" in f16_note([fits])
    assert misses(verdict("F16", sample(2e-4), sample(1e-6)))[0].startswith("F16, f16 KV: the mean is 0.000")
    assert "f16 KV yes" in f16_note([verdict("F16", sample(1e-6), sample(1e-6))])


def test_row_paths_must_agree_bit_for_bit() -> None:
    zero = np.zeros((1, 2), dtype=np.float32)
    assert same_bits({"prefill": zero, "single": zero.copy()})
    assert not same_bits({"prefill": zero, "single": -zero})
    level = sample(1e-4)
    assert "depend on how rows are cut" in misses(verdict("F16", level, level, paths_equal=False))[0]


def test_table_and_ratios() -> None:
    level = sample(1e-4)
    good, bad = verdict("Q8_0", level, level), verdict("Q8_0", sample(3e-4), level)
    assert ratios(good) == ["1.00±0.00"] * 4 + ["+0.00±0.00"]
    assert ratios(bad)[0].startswith("3.00±")
    assert ratios(bad)[0].endswith("!")
    assert len(table([good, bad]).splitlines()) == 7
    assert ratios(verdict("Q8_0", level, sample(0.0)))[0].endswith("!")
    nudged = KvResult("q8_0", {}, {"batch 512": level}, True, nudged=level)
    assert "llama.cpp, nudged" in table(judge("Q8_0", [result(level, level), nudged]))


def test_record_is_json(tmp_path: Path) -> None:
    level = sample(1e-4)
    results = [result(level, level)]
    save(tmp_path / "kl.json", record(judge("Q8_0", results), results, "avx2", 1.0))
    found = json.loads((tmp_path / "kl.json").read_text(encoding="utf-8"))
    assert found["tokens"] == 600
    assert found["results"][0]["pyjet"]["single"]["mean"] == pytest.approx(1e-4, rel=0.1)
    assert found["results"][0]["within"]["mean"] is True
    assert found["results"][0]["llama_cpp_nudged"] is None
    assert sorted(found["texts"]) == ["eval-chats.jsonl", "kl-python.txt"]


@pytest.mark.parametrize(
    ("argument", "recorded"),
    [("/a/b/kl.json", "kl.json"), ("--out=../kl.json", "--out=kl.json"), ("F16,Q8_0", "F16,Q8_0")],
)
def test_recorded_commands_name_no_folders(argument: str, recorded: str) -> None:
    assert without_folder(argument) == recorded
