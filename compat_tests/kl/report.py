"""KL divergence statistics, the bound that is checked, and the printed table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from cli.llama_cpp import Logits

F16_MEAN_BOUND = 1e-4  # nats; no activation is quantised, so only the rounding of sums differs

# With quantised weights a rounding difference of one bit can move an activation to its neighbouring
# integer, and such moves add up to a level that hardly depends on where they start. llama.cpp shows
# that level between its own batch and single runs, but not always: with q8_0 weights and q8_0 KV both
# take the same path and agree bit for bit. So the measure for a file is the largest of llama.cpp's own
# figures over its KV types, and ours may differ from it by what two samples of the level differ.
TOLERANCE = {"mean": 1.25, "median": 1.25, "p99": 1.25, "max": 2.0}


@dataclass(frozen=True)
class Divergence:
    """KL(base || other) over rows, in nats, and the share of rows with the same best token."""

    rows: int
    mean: float
    median: float
    p99: float
    max: float
    top1: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def log_softmax(logits: Logits) -> np.ndarray:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def kl_rows(base: Logits, other: Logits) -> np.ndarray:
    """KL(base || other) of each row, in nats, float64 [rows]."""
    p, q = log_softmax(base), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def divergence(pairs: Iterable[tuple[Logits, Logits]]) -> Divergence:
    """Statistics over the rows of all (base, other) pairs."""
    kld, same = [], []
    for base, other in pairs:
        kld.append(kl_rows(base, other))
        same.append(base.argmax(-1) == other.argmax(-1))
    values, agree = np.concatenate(kld), np.concatenate(same)
    return Divergence(
        rows=len(values),
        mean=float(values.mean()),
        median=float(np.median(values)),
        p99=float(np.percentile(values, 99)),
        max=float(values.max()),
        top1=float(agree.mean()),
    )


@dataclass(frozen=True)
class FileResult:
    """What one file with one KV type gave."""

    weights: str
    kv_type: str
    noise: Divergence  # llama.cpp batch against llama.cpp single
    versus: dict[str, Divergence]  # llama.cpp's mode -> pyjet against it
    paths_equal: bool  # pyjet's logits have the same bits in every row path

    @property
    def label(self) -> str:
        return f"{self.weights}, {self.kv_type} KV"

    def as_dict(self) -> dict:
        return {
            "weights": self.weights,
            "kv": self.kv_type,
            "llama_batch_vs_single": self.noise.as_dict(),
            "pyjet": {mode: d.as_dict() for mode, d in self.versus.items()},
            "row_paths_equal": self.paths_equal,
        }


def limits(weights: str, results: Sequence[FileResult]) -> dict[str, float]:
    """Largest allowed value of each statistic for one file."""
    if weights == "F16":
        return {"mean": F16_MEAN_BOUND}
    noises = [result.noise for result in results if result.weights == weights]
    return {name: factor * max(getattr(noise, name) for noise in noises) for name, factor in TOLERANCE.items()}


def misses(results: Sequence[FileResult]) -> list[str]:
    """Sentences about what is out of bounds; empty when all is well."""
    found = []
    for result in results:
        if not result.paths_equal:
            found.append(f"{result.label}: logits differ between prompt chunks")
        for mode, ours in result.versus.items():
            for name, limit in limits(result.weights, results).items():
                value = getattr(ours, name)
                if value > limit:
                    found.append(f"{result.label}: {name} KLD against llama.cpp {mode} is {value:.3g} > {limit:.3g}")
    return found


def table(results: Sequence[FileResult]) -> str:
    """One line per comparison, llama.cpp's own noise first."""
    head = f"{'file':16} {'comparison':28} {'mean':>9} {'median':>9} {'99%':>9} {'max':>9} {'top-1':>8}"
    lines = [head, "-" * len(head)]
    for result in results:
        lines.append(_line(result.label, "llama.cpp batch vs single", result.noise))
        for mode, ours in result.versus.items():
            lines.append(_line("", f"pyjet vs llama.cpp {mode}", ours))
    return "\n".join(lines)


def _line(label: str, comparison: str, d: Divergence) -> str:
    numbers = " ".join(f"{value:9.2e}" for value in (d.mean, d.median, d.p99, d.max))
    return f"{label:16} {comparison:28} {numbers} {d.top1:8.2%}"
