"""Steps at positions, their verdict and what becomes of the figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench import bounds, op_table, record, report
from bench.step import Bench, main, ratios
from bench.step_rows import PAGE_TOKENS, Rows, decode_rows, make_batch
from bench.step_verdict import is_batch_invariant, kl_between
from bench.step_work import attention, decode_weight_bytes, delta_net, products
from pyjet.assets import default_model_path
from pyjet.model.reader import Model, load_model
from pyjet.native import SEQ_RESET, EngineConfig, NativeEngine


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(default_model_path())


def test_parts_of_a_batch_own_their_pages() -> None:
    parts = [*decode_rows(2, 3, 63), Rows(5, 4, 0, 9, 0)]
    batch = make_batch(parts, 1000)
    assert batch.positions.tolist() == [63, 64, 65, 63, 64, 65, 0, 1, 2, 3]
    assert batch.page_table.tolist() == [0, 1, 2, 3, 9]
    assert [(int(s["row_begin"]), int(s["page_begin"]), int(s["n_pages"])) for s in batch.seqs] == [
        (0, 0, 2),
        (3, 2, 2),
        (6, 4, 1),
    ]
    assert batch.seqs["flags"].tolist() == [0, 0, SEQ_RESET]
    assert len(set(batch.tokens.tolist())) == 10
    assert batch.row_flags[6:].tolist() == [0] * 4


def test_the_verdict_is_true_and_notices_a_wrong_page(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(model, "cpu", "q8_0", chunk=16, prompt_chunk=16, repeat=1)
    with bench.open((150,), 0) as engine:
        assert is_batch_invariant(engine, 150, 16, 9)
        # The first page of a sequence was filled from the same prompt as all others, so it must be spoilt to matter.
        noise = np.random.default_rng(3).integers(0, 60, (1, engine.page_bytes)).astype(np.uint8)
        step = NativeEngine.step
        runs = iter(range(100))

        def spoil(self: NativeEngine, batch: object) -> object:
            if next(runs) == 5:
                self.pages_write([0], noise)
            return step(self, batch)  # type: ignore[arg-type]

        monkeypatch.setattr(NativeEngine, "step", spoil)
        assert not is_batch_invariant(engine, 150, 16, 9)


def test_kl_of_an_engine_to_itself_is_zero_and_to_another_isa_small(model: Model) -> None:
    config = EngineConfig(8, 1)
    assert kl_between(model, config, config) == 0
    assert 0 < kl_between(model, EngineConfig(8, 1, isa="portable", kv_type_k="q8_0"), config) < 1e-2


def test_work_of_a_step(model: Model) -> None:
    hp = model.hyperparams
    one, three = [Rows(0, 1, 99, 0)], [Rows(0, 3, 97, 0)]
    assert products(model, one).n_bytes <= decode_weight_bytes(model) < model.file_bytes
    assert products(model, three) == products(model, three[:1])
    assert products(model, three).macs == 3 * products(model, one).macs
    assert products(model, [Rows(0, 1, 99, 0, 0)]).n_bytes < products(model, one).n_bytes  # no head
    n_attention = sum(hp.block_is_attention)
    assert attention(model, one, "f16").n_bytes == n_attention * 100 * 2 * hp.n_head_kv * hp.head_dim * 2
    assert attention(model, three, "f16").n_bytes == attention(model, one, "f16").n_bytes
    assert delta_net(model, three).n_bytes == delta_net(model, one).n_bytes


def test_ratios_need_their_parts(model: Model) -> None:
    assert ratios(model, {"ms_1_rows_at_200": 4.0, "ms_12_rows_at_200": 5.0}) == {"step_ratio_12_over_1": 1.25}
    figures = {"ms_1_rows_at_200": decode_weight_bytes(model) / 1e6 / 2000, "read_gb_s": 4000.0}
    assert ratios(model, figures)["decode_bw_fraction_1row"] == 0.5


def test_the_command_writes_flat_figures_that_the_tables_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "step.json"
    arguments = f"{default_model_path()} --device cpu --positions 70,200 --prompt 130 --chunk 64 --repeat 1 --no-memory"
    result = CliRunner().invoke(main, [*arguments.split(), "--out", str(out)])
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["is_correct"] and found["batch_invariant_at_70"] and found["ms_24_rows_at_200"] > 0
    assert [key for key, value in found.items() if isinstance(value, dict)] == ["ops"]
    absent = {"vram_gb_27b_132k_4slots", "decode_bw_fraction_1row", "prefill_ratio_vs_llamacpp", "kl_to_cpu_pyjet_tiny"}
    assert not absent & set(found)
    assert "| 24 rows |" in report.step_table(found) and "| at 200 |" in report.step_table(found)
    assert "| gdn |" in op_table.markdown(found, "12_rows_at_200")


def test_bounds(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    file.write_text(json.dumps({"is_correct": True, "step_ratio_12_over_1": 1.3}), encoding="utf-8")
    kept = CliRunner().invoke(bounds.main, [str(file)])
    assert kept.exit_code == 0 and kept.output.count("not measured") == len(bounds.BOUNDS) - 2
    file.write_text(json.dumps({"is_correct": False, "step_ratio_12_over_1": 1.4}), encoding="utf-8")
    missed = CliRunner().invoke(bounds.main, [str(file)])
    assert missed.exit_code == 1 and missed.output.count("MISSED") == 2


def test_figures_of_another_build_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    first = {"commit": "a", "device": "d", "pyjet": "p", "model": "m"}
    record.update(file, first, {"x": 1})
    assert record.update(file, first, {"y": 2})["x"] == 1
    assert "x" not in record.update(file, {**first, "commit": "b"}, {"y": 3})


def test_page_size_is_the_servers() -> None:
    from pyjet.engine.settings import EngineSettings

    assert EngineSettings("x").page_tokens == PAGE_TOKENS
