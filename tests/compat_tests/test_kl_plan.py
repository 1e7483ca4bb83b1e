"""Which of llama.cpp's modes run, and the nudged file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter

from compat_tests.kl.divergence import Sample
from compat_tests.kl.measure import Job, JobResult
from compat_tests.kl.nudge import nudge
from compat_tests.kl.oracle import distinct, modes_for
from compat_tests.kl.plan import Found, all_jobs, remaining
from compat_tests.kl.texts import Window


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A GGUF with one F32 and one F16 tensor."""
    path = tmp_path / "small.gguf"
    writer = GGUFWriter(path, "test")
    writer.add_tensor("norm", np.array([1.0, -2.0, 0.0, 3e-5] * 16, dtype=np.float32))
    writer.add_tensor("matrix", np.arange(8, dtype=np.float16).reshape(2, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in GGUFReader(path).tensors}


def probed(*modes: str) -> JobResult:
    sample = Sample(np.zeros((1, 4)), np.ones((1, 4), dtype=bool))
    return JobResult(own={}, ours=dict.fromkeys(modes, sample), nudged=None, paths_equal=True)


def jobs(file: Path, weights: str = "Q8_0") -> list[Job]:
    tokens = np.arange(4, dtype=np.int32)
    suite = [Window(f"{kind} {i}", kind, tokens) for kind in ("code", "chat") for i in range(2)]
    return all_jobs({weights: file}, suite)


def test_every_f32_value_moves_to_a_neighbour(file: Path, tmp_path: Path) -> None:
    before, after = tensors(file), tensors(nudge(file, tmp_path / "nudged.gguf"))
    old, new = before["norm"], after["norm"]
    up = new == np.nextafter(old, np.float32(np.inf))
    down = new == np.nextafter(old, np.float32(-np.inf))
    assert (up | down).all()
    assert up.any()
    assert down.any()
    assert np.array_equal(before["matrix"], after["matrix"])


def test_a_seed_gives_one_nudged_file(file: Path, tmp_path: Path) -> None:
    first, again, other = (nudge(file, tmp_path / f"{i}.gguf", seed) for i, seed in enumerate((1, 1, 2)))
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != other.read_bytes()


def test_modes_that_repeat_bits_are_dropped() -> None:
    zero, one = np.zeros((2, 3), dtype=np.float32), np.ones((2, 3), dtype=np.float32)
    assert list(distinct({"a": zero, "b": one, "c": zero.copy(), "d": -zero})) == ["a", "b", "d"]


def test_flash_attention_is_off_with_f16_kv_only() -> None:
    assert modes_for("q8_0") == ("batch 512", "batch 8", "single")
    assert modes_for("f16") == (*modes_for("q8_0"), *(f"{name}, no flash" for name in modes_for("q8_0")))


def test_f16_runs_on_every_second_window(file: Path) -> None:
    assert [(job.kv_type, job.window) for job in jobs(file, "F16")] == [
        (kv, i) for kv in ("f16", "q8_0") for i in (0, 2)
    ]


def test_windows_after_the_first_run_in_distinct_modes(file: Path, tmp_path: Path) -> None:
    found: Found = {("Q8_0", "f16"): {0: probed("single", "batch 8")}, ("Q8_0", "q8_0"): {0: probed("batch 512")}}
    rest = list(remaining(jobs(file), found, tmp_path))
    of_f16 = [job for job in rest if job.kv_type == "f16"]
    assert [(job.window, job.modes, job.nudged) for job in of_f16] == [
        (i, ("single", "batch 8"), None) for i in (1, 2, 3)
    ]


def test_one_mode_is_compared_with_the_nudged_file_on_all_windows(file: Path, tmp_path: Path) -> None:
    found: Found = {("Q8_0", kv): {0: probed("batch 512")} for kv in ("f16", "q8_0")}
    rest = list(remaining(jobs(file), found, tmp_path))
    assert [job.window for job in rest] == [0, 1, 2, 3] * 2
    assert {job.nudged for job in rest} == {tmp_path / "Q8_0-nudged.gguf"}
    assert [job.all_paths for job in rest] == [True, False, True, False] * 2
