"""The click commands, without starting an engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.dense_shapes import DENSE_PRESETS
from bench.make_synthetic_gguf import write_synthetic
from cli import doctor as doctor_module
from cli.main import COMMANDS, main
from pyjet.assets import default_model_path
from pyjet.native import Gpu
from pyjet.server import device_choice


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def test_help_names_every_command() -> None:
    status, text = invoke("--help")
    assert status == 0
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_manual(name: str) -> None:
    status, text = invoke(name, "--help")
    assert status == 0
    assert len(text.splitlines()) > 5


def test_version() -> None:
    status, text = invoke("--version")
    assert status == 0
    assert text.startswith("pyjet, version ")


def test_unknown_command_is_refused() -> None:
    status, text = invoke("frobnicate")
    assert status == 2
    assert "frobnicate" in text


def test_inspect_shows_architecture_types_and_what_fits() -> None:
    status, text = invoke("inspect", str(default_model_path()), "--memory", "24", "--tensors")
    assert status == 0
    for part in ("qwen35", "2 full attention, 6 Gated DeltaNet", "Q4_K", "24 GiB", "token_embd.weight"):
        assert part in text


def test_inspect_of_a_dense_model(tmp_path: Path) -> None:
    path = tmp_path / "dense.gguf"
    write_synthetic(path, DENSE_PRESETS["micro-llama"], type_name="Q8_0", pool_bytes=1 << 16)
    status, text = invoke("inspect", str(path))
    assert status == 0
    assert "2: 2 full attention" in text and "5 query and 1 KV heads of 64" in text
    assert "DeltaNet" not in text and "recurrent" not in text


def test_inspect_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    status, text = invoke("inspect", str(broken))
    assert status == 1
    assert text.startswith("Error: ")
    assert "broken.gguf" in text


def test_doctor_reports_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise doctor_module.Missing("the library; build it")

    checks = {"pyjet": lambda: "0.1.0", "library": missing}
    monkeypatch.setattr(doctor_module, "CHECKS", checks)
    status, text = invoke("doctor")
    assert status == 1
    assert "MISSING: the library; build it" in text


def test_doctor_notes_an_absent_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "output_of", lambda *command: None)
    assert doctor_module.check_gpu().startswith("no NVIDIA GPU")
    assert doctor_module.check_nvcc().startswith("no nvcc")
    assert doctor_module.check_compiler().startswith("no C++ compiler")


def test_doctor_reads_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "NVIDIA GeForce RTX 3090, 580.95.05, 24576 MiB, 8.6"
    monkeypatch.setattr(doctor_module, "output_of", lambda *command: line)
    assert doctor_module.check_gpu() == "NVIDIA GeForce RTX 3090, 24576 MiB, compute capability 8.6, driver 580.95.05"


def test_doctor_says_which_device_the_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_choice, "list_gpus", lambda: ([], "no NVIDIA driver was found"))
    assert doctor_module.check_device() == "cpu (no NVIDIA driver was found)"
    monkeypatch.setattr(device_choice, "list_gpus", lambda: ([Gpu(0, "NVIDIA H200", "")], ""))
    assert doctor_module.check_device() == "cuda (NVIDIA H200, CUDA0 of 1)"


def test_bench_refuses_an_absent_file(tmp_path: Path) -> None:
    status, text = invoke("bench", "--model", str(tmp_path / "absent.gguf"))
    assert status == 1
    assert "absent.gguf" in text


def test_run_refuses_an_absent_file(tmp_path: Path) -> None:
    status, text = invoke("run", "hello", "--model", str(tmp_path / "absent.gguf"))
    assert status == 1
    assert "absent.gguf" in text


def test_serve_hands_all_options_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("pyjet.server.main.main", lambda arguments: seen.append(arguments) or 0)
    status, _ = invoke("serve", "--port", "9000", "-c", "4096", "--metrics", "--temp", "-1")
    assert status == 0
    assert seen == [["--port", "9000", "-c", "4096", "--metrics", "--temp", "-1"]]


def test_example_request_is_valid_json() -> None:
    from cli.serve import EXAMPLE

    body = EXAMPLE.format(url="http://127.0.0.1:8080").split("-d '", 1)[1].rsplit("'", 1)[0]
    assert json.loads(body)["tools"][0]["function"]["name"] == "get_weather"
