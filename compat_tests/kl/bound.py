"""The bound: pyjet may differ from llama.cpp by what llama.cpp differs from itself, up to sampling error.

For one file, llama.cpp's own figure is the worst over its pairs of modes and over the KV types. With a KV
type in which all modes agree bit for bit, llama.cpp on the nudged file counts as well, for that KV type
only. pyjet's figure is over its rows against all modes. The standard error of the difference comes from a bootstrap
over windows, in which rows are not independent (Efron and Tibshirani, "An Introduction to the
Bootstrap", 1993, chapter 8); both figures are computed on the same resampled windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compat_tests.kl.divergence import STATISTICS, Figures, Floats, Sample, pool

F16_MEAN_BOUND = 1e-4  # nats; F16 weights multiply unrounded activations, so there is no level to reach
STANDARD_ERRORS = 2  # one-sided
RESAMPLES = 1000
SEED = 1

_SIGN = np.array([-1.0 if name == "top1" else 1.0 for name in STATISTICS])  # excess > 0 is worse


@dataclass(frozen=True)
class KvResult:
    """What one file with one KV type gave."""

    kv_type: str
    own: dict[tuple[str, str], Sample]  # pair of llama.cpp's modes
    ours: dict[str, Sample]  # llama.cpp's mode -> pyjet against it
    paths_equal: bool  # pyjet's logits have the same bits in every row path
    nudged: Sample | None = None  # llama.cpp on the nudged file against itself, where it has one mode only

    @property
    def pooled(self) -> Sample:
        return pool(list(self.ours.values()))


@dataclass(frozen=True)
class Verdict:
    """pyjet's pooled figures beside llama.cpp's own; arrays are in the order of STATISTICS."""

    weights: str
    kv_type: str
    own: Figures
    ours: Figures
    excess: Floats  # how much worse ours is; below 0: better
    standard_error: Floats  # of the excess
    paths_equal: bool
    nudged: bool  # own counts the nudged file

    @property
    def within(self) -> dict[str, bool]:
        """Statistic -> not worse than llama.cpp's own, up to the sampling error."""
        fits = self.excess <= STANDARD_ERRORS * self.standard_error
        return dict(zip(STATISTICS, fits.tolist()))


def own_figures(results: Sequence[KvResult], chosen: np.ndarray | None = None) -> Floats:
    """llama.cpp's own figures [KV types, statistics]: of each statistic the worst that counts for the cell."""
    shared = [sample.figures(chosen).as_array() for result in results for sample in result.own.values()]
    found = []
    for result in results:
        extra = [result.nudged.figures(chosen).as_array()] if result.nudged else []
        found.append((_SIGN * np.array([*shared, *extra])).max(axis=0))
    return _SIGN * np.array(found)


def judge(weights: str, results: Sequence[KvResult]) -> list[Verdict]:
    """One verdict per KV type of a file."""
    pooled = [result.pooled for result in results]
    n_windows = len(pooled[0].kld)

    def figures(chosen: np.ndarray | None) -> tuple[Floats, Floats]:
        return own_figures(results, chosen), np.array([sample.figures(chosen).as_array() for sample in pooled])

    def excess(own: Floats, ours: Floats) -> Floats:
        return _SIGN * (ours - own)

    random = np.random.default_rng(SEED)
    resampled = [excess(*figures(random.integers(0, n_windows, n_windows))) for _ in range(RESAMPLES)]
    standard_error = np.std(resampled, axis=0, ddof=1)
    own, ours = figures(None)
    return [
        Verdict(
            weights=weights,
            kv_type=result.kv_type,
            own=Figures(*own[i].tolist()),
            ours=Figures(*ours[i].tolist()),
            excess=excess(own[i], ours[i]),
            standard_error=standard_error[i],
            paths_equal=result.paths_equal,
            nudged=result.nudged is not None,
        )
        for i, result in enumerate(results)
    ]


def misses(verdict: Verdict) -> list[str]:
    """Sentences about what is out of bounds; empty when all is well."""
    label = f"{verdict.weights}, {verdict.kv_type} KV"
    found = []
    if not verdict.paths_equal:
        found.append(f"{label}: pyjet's logits depend on how rows are cut into steps")
    if verdict.weights == "F16" and not verdict.ours.mean < F16_MEAN_BOUND:
        found.append(f"{label}: the mean is {verdict.ours.mean:.3g}, the bound is {F16_MEAN_BOUND:.0e}")
    for name, error in zip(STATISTICS, verdict.standard_error.tolist()):
        bound = name == "top1" or verdict.weights != "F16"
        if bound and not verdict.within[name]:
            ours, own = getattr(verdict.ours, name), getattr(verdict.own, name)
            found.append(f"{label}: {name} is {ours:.4g}, llama.cpp's own {own:.4g}, standard error {error:.2g}")
    return found
