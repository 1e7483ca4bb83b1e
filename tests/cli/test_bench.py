"""pyjet bench with engines that only pretend."""

from __future__ import annotations

from typing import Any

from cli.bench import rows, table, verdict
from cli.speed import Task, measure


class FakeSource:
    """Answers with the next speed of a list; the first value of each task is the warm-up."""

    device_name = "fake"

    def __init__(self, name: str, speeds: list[float]):
        self.name, self._speeds = name, iter(speeds)

    def run(self, task: Task) -> float:
        return next(self._speeds)

    def close(self) -> None:
        pass


def record(ratio: float) -> dict[str, Any]:
    task = Task("decode", 32)
    sources = [FakeSource("pyjet", [1, 30 * ratio, 10 * ratio, 20 * ratio]), FakeSource("llama.cpp", [1, 30, 10, 20])]
    found = rows([task], measure(sources, [task], 3))
    return {"model": "m", "device": "cpu", "threads": 2, "kv": "f16", "llama_cpp": "x", "results": found}


def test_median_extremes_and_ratio() -> None:
    row = record(0.5)["results"][0]
    assert (row["pyjet"], row["pyjet_min_max"], row["llama.cpp"], row["ratio"]) == (10, [5, 15], 20, 0.5)


def test_table_has_one_line_per_task() -> None:
    lines = table(record(0.5)).splitlines()
    assert lines[-1].split() == ["decode", "32", "10.0", "20.0", "0.50"]


def test_verdict() -> None:
    assert verdict(record(0.8), 0.7, quiet=True) == 0
    assert verdict(record(0.6), 0.7, quiet=True) == 1
    assert verdict(record(0.6), None, quiet=True) == 0
