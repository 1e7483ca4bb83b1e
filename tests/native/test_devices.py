"""Which devices there are: the CPU always, GPUs or a reason why not."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from pyjet.native import Gpu, NativeError, build_info, device_count, device_name, devices, library, list_gpus

WITH_CUDA = "cuda: none" not in build_info()


def test_there_is_one_cpu() -> None:
    assert device_count("cpu") == (1, "")
    assert device_name("cpu", 0) == "CPU"
    with pytest.raises(NativeError, match="no device 1"):
        device_name("cpu", 1)


def test_gpus_or_the_reason_why_not() -> None:
    count, reason = device_count("cuda")
    assert (count > 0) == (reason == "")
    if not WITH_CUDA:
        assert count == 0 and "built without the CUDA backend; build it with -DPJ_CUDA=ON or use the CPU" in reason
    with pytest.raises(NativeError) as caught:
        device_name("cuda", 1 << 20)
    assert caught.value.kind == "device" and caught.value.message


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(NativeError, match="device 'tpu' is unknown; use one of cpu, cuda"):
        device_count("tpu")  # type: ignore[arg-type]
    with pytest.raises(NativeError, match="device 'tpu' is unknown"):
        device_name("tpu", 0)  # type: ignore[arg-type]
    lib = library.load_library()
    assert lib.pj_device_count(7) == 0 and lib.pj_last_error().startswith(b"device is 7")


def test_no_gpus_need_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "device_count", lambda _device: (0, "no driver"))
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_more: pytest.fail("a probe was started"))
    assert list_gpus() == ([], "no driver")


def test_the_probe_lists_what_the_library_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real probe process: without GPUs an empty list."""
    real = device_count("cuda")[0]
    monkeypatch.setattr(devices, "device_count", lambda _device: (max(real, 1), ""))
    gpus, reason = list_gpus()
    assert [gpu.index for gpu in gpus] == list(range(real)) and reason == ""


def test_the_probe_tells_names_and_problems(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def name(_device: str, index: int) -> str:
        if index == 1:
            raise NativeError(4, "Tesla V100 is sm_70")
        return "NVIDIA H200"

    monkeypatch.setattr(devices, "device_count", lambda _device: (2, ""))
    monkeypatch.setattr(devices, "device_name", name)
    devices.print_gpus()
    answer = capsys.readouterr().out
    assert [Gpu(**entry) for entry in json.loads(answer)] == [
        Gpu(0, "NVIDIA H200", ""),
        Gpu(1, "", "Tesla V100 is sm_70"),
    ]


@pytest.mark.parametrize("failure", ["status", "timeout"])
def test_a_probe_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    def run(command: list[str], **_more: Any) -> subprocess.CompletedProcess[str]:
        if failure == "timeout":
            raise subprocess.TimeoutExpired(command, 120)
        return subprocess.CompletedProcess(command, 1, "", "Traceback\nOSError: no such library")

    monkeypatch.setattr(devices, "device_count", lambda _device: (1, ""))
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(NativeError, match="could not be examined"):
        list_gpus()
