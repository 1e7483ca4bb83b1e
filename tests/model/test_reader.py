"""Loading model files: what a good one gives, and what the refusals of bad ones say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from bench.make_synthetic_gguf import FILE_TYPES, PRESETS, write_synthetic
from pyjet.assets import default_model_path
from pyjet.model import Model, ModelError, load_model
from pyjet.model.architecture import expected_tensors
from tests.support.gguf_patch import find_spots, patched
from tests.support.requantize import copy_metadata, requantize


def test_embedded_model(tiny: Model) -> None:
    hp = tiny.hyperparams
    assert (hp.n_block, hp.n_nextn, hp.n_embd, hp.n_ff, hp.n_vocab) == (8, 1, 512, 1024, 7424)
    assert (hp.n_head, hp.n_head_kv, hp.head_dim, hp.rope_dim) == (4, 2, 256, 64)
    assert (hp.n_gdn_head_v, hp.n_gdn_head_k, hp.gdn_dim, hp.conv_kernel) == (4, 2, 128, 4)
    assert hp.rope_sections == (11, 11, 10, 0) and hp.rope_base == 1e7 and hp.rms_eps == pytest.approx(1e-6)
    assert hp.n_ctx_train == 32768
    assert [index for index, attention in enumerate(hp.block_is_attention) if attention] == [3, 7]
    assert tiny.name == "pyjet-tiny" and tiny.ftype_name == "Q4_K - Medium"
    assert tiny.type_counts == {"Q4_K": 61, "F32": 52, "Q6_K": 11}
    assert tiny.file_bytes == default_model_path().stat().st_size
    assert tiny.n_params == 34927920 and tiny.tensor_bytes == 21907136


def test_same_contents_as_the_gguf_package(tiny: Model) -> None:
    reader = GGUFReader(default_model_path())
    theirs = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert tiny.metadata == theirs
    assert list(tiny.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        mine = tiny.tensors[tensor.name]
        assert (mine.type, mine.shape, mine.n_bytes) == (tensor.tensor_type, tuple(tensor.shape), tensor.n_bytes)
        assert mine.data.dtype == np.uint8 and mine.data.ndim == 1 and not mine.data.flags.writeable
        assert np.array_equal(mine.data, tensor.data.reshape(-1).view(np.uint8))


@pytest.mark.parametrize("type_name", FILE_TYPES)
def test_every_weight_type_loads(type_name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    hp = PRESETS["micro"]
    write_synthetic(path, hp, type_name=type_name, pool_bytes=1 << 16)
    model = load_model(path, check_tensors=True)
    assert dataclasses.replace(model.hyperparams, rms_eps=hp.rms_eps) == hp
    assert ("Q6_K" if type_name == "Q4_K_M" else type_name) in model.type_counts


def test_synthetic_weights_have_the_promised_spread(tmp_path: Path) -> None:
    for type_name in ("Q4_0", "Q5_1", "Q2_K", "Q4_K", "Q6_K", "IQ4_XS"):
        path = tmp_path / f"{type_name}.gguf"
        write_synthetic(path, PRESETS["micro"], type_name=type_name, pool_bytes=1 << 18)
        tensor = load_model(path).tensors["blk.0.ffn_up.weight"]
        rows = tensor.data.reshape(tensor.shape[1], -1)
        values = gguf.quants.dequantize(rows, GGMLQuantizationType(tensor.type))
        assert abs(values.mean()) < 0.1 * values.std()
        assert values.std() == pytest.approx(0.5 / np.sqrt(tensor.shape[0]), rel=0.15)


@pytest.mark.parametrize("type_name", ["F16", "Q8_0"])
def test_requantize_keeps_metadata_and_values(type_name: str, micro_path: Path, tmp_path: Path) -> None:
    source = load_model(micro_path)
    model = load_model(requantize(micro_path, tmp_path / "out.gguf", type_name))
    changed = {key for key in source.metadata if source.metadata[key] != model.metadata[key]}
    assert changed == {"general.file_type"} and model.metadata.keys() == source.metadata.keys()
    assert list(model.tensors) == list(source.tensors)
    assert model.ftype_name == type_name
    old, new = (each.tensors["blk.0.ffn_up.weight"] for each in (source, model))
    kinds = [GGMLQuantizationType(tensor.type) for tensor in (old, new)]
    before = gguf.quants.dequantize(old.data.reshape(old.shape[1], -1), kinds[0])
    raw = new.data.reshape(new.shape[1], -1)
    after = gguf.quants.dequantize(raw.view(np.float16) if type_name == "F16" else raw, kinds[1])
    assert np.abs(after - before).max() < 0.01 * np.abs(before).max()
    with pytest.raises(ValueError, match="these work"):
        requantize(micro_path, tmp_path / "bad.gguf", "Q4_K")


def write_parts(source: Path, folder: Path, count: int) -> list[Path]:
    """Split a model into `count` files, tensors dealt in order."""
    reader = GGUFReader(source)
    paths = []
    for part in range(count):
        path = folder / f"model-{part + 1:05d}-of-{count:05d}.gguf"
        writer = GGUFWriter(path, "qwen35")
        if part == 0:
            copy_metadata(reader, writer)
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        size = -(-len(reader.tensors) // count)
        for tensor in reader.tensors[part * size : (part + 1) * size]:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        paths.append(path)
    return paths


def test_split_files(micro_path: Path, tmp_path: Path) -> None:
    whole = load_model(micro_path)
    paths = write_parts(micro_path, tmp_path, 3)
    model = load_model(paths[0])
    assert list(model.tensors) == list(whole.tensors)
    assert all(np.array_equal(model.tensors[name].data, whole.tensors[name].data) for name in whole.tensors)
    assert model.file_bytes == sum(path.stat().st_size for path in paths)

    with pytest.raises(ModelError, match=r"part 2 of 3; pass the first part"):
        load_model(paths[1])
    saved = paths[2].read_bytes()
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(ModelError, match=r"00003-of-00003.gguf: split.no is 1, expected 2"):
        load_model(paths[0])
    paths[2].unlink()
    with pytest.raises(ModelError, match=r"00003-of-00003.gguf: part 3 of 3 is missing"):
        load_model(paths[0])
    paths[2].write_bytes(saved)
    moved = paths[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelError, match=r"NAME-00001-of-00003\.gguf"):
        load_model(moved)


def test_overrides(micro_path: Path) -> None:
    model = load_model(micro_path, overrides={"qwen35.context_length": 77, "general.name": "other"})
    assert model.hyperparams.n_ctx_train == 77 and model.name == "other"
    with pytest.raises(ModelError, match=r"'qwen35\.context_length': is 'long', expected an integer"):
        load_model(micro_path, overrides={"qwen35.context_length": "long"})


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q3_K", "Q6_K"])
def test_check_tensors_finds_infinity(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_synthetic(path, PRESETS["micro"], type_name=kind, pool_bytes=1 << 16)
    model = load_model(path, check_tensors=True)
    tensor = model.tensors["blk.1.ffn_down.weight"]
    at = path.read_bytes().rindex(bytes(tensor.data[:64]))
    scale, bits = {"F32": (2, 0x7F80), "BF16": (0, 0x7F80), "Q3_K": (108, 0x7C00), "Q6_K": (208, 0xFC01)}.get(
        kind, (0, 0x7C00)
    )
    path.write_bytes(patched(path.read_bytes(), at + scale, "<H", bits))
    load_model(path)
    with pytest.raises(ModelError, match=r"tensor '.*' holds NaN or infinity"):
        load_model(path, check_tensors=True)


def rewrite(source: Path, target: Path, *, drop: str = "", extra: str = "") -> Path:
    """A copy without the tensors whose name starts with `drop`, with an F32 tensor named `extra`."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, "qwen35")
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        if not drop or not tensor.name.startswith(drop):
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    if extra:
        writer.add_tensor(extra, np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def test_missing_and_foreign_tensors(micro_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"bad.gguf: tensor 'blk.0.ssm_a' is missing"):
        load_model(rewrite(micro_path, tmp_path / "bad.gguf", drop="blk.0.ssm_a"))
    with pytest.raises(ModelError, match=r"tensor 'blk.0.attn_q.bias' is not part of the qwen35 architecture"):
        load_model(rewrite(micro_path, tmp_path / "extra.gguf", extra="blk.0.attn_q.bias"))
    tied = load_model(rewrite(micro_path, tmp_path / "tied.gguf", drop="output.weight"))
    assert "output.weight" not in tied.tensors
    trunk_only = load_model(rewrite(micro_path, tmp_path / "trunk.gguf", drop="blk.2."))
    assert trunk_only.hyperparams.n_nextn == 0 and trunk_only.hyperparams.n_block == 2


def test_refusals_name_tensor_and_what_works(micro_path: Path, tmp_path: Path) -> None:
    data = micro_path.read_bytes()
    _, rows, _ = find_spots(data)
    spot = {row.name: row for row in rows}["blk.0.ffn_up.weight"]
    path = tmp_path / "bad.gguf"
    path.write_bytes(patched(data, spot.shape_at, "<QQ", 512, 128))
    with pytest.raises(ModelError, match=r"ffn_up.weight' has shape \[512, 128\], expected \[256, 256\]"):
        load_model(path)
    path.write_bytes(patched(data, spot.type_at, "<I", 22))  # IQ2_S: 82 bytes for 256 weights
    with pytest.raises(ModelError, match=r"bad.gguf: tensor"):
        load_model(path)
    path.write_bytes(data[: len(data) - 4096])
    with pytest.raises(ModelError, match=r"the file is truncated: tensor 'blk.2.nextn.+' ends at byte"):
        load_model(path)


def test_unsupported_type_lists_the_supported_ones(tmp_path: Path, micro_path: Path) -> None:
    reader = GGUFReader(micro_path)
    writer = GGUFWriter(tmp_path / "tq.gguf", "qwen35")
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        kind, data = tensor.tensor_type, np.array(tensor.data)
        if tensor.name == "blk.1.attn_k.weight":
            kind = GGMLQuantizationType.TQ1_0
            data = gguf.quants.quantize(np.zeros((128, 256), np.float32), kind)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"'blk.1.attn_k.weight' has type TQ1_0.*Q8_0.*IQ4_XS"):
        load_model(tmp_path / "tq.gguf")


def test_expected_tensors_cover_the_embedded_model(tiny: Model) -> None:
    table = {name: (shape, required) for name, shape, required in expected_tensors(tiny.hyperparams)}
    assert set(tiny.tensors) <= set(table)
    optional = {name for name, (_, required) in table.items() if not required}
    assert optional == {"output.weight"} | {
        f"blk.8.nextn.{part}.weight" for part in ("embed_tokens", "shared_head_head", "shared_head_norm")
    }


def test_missing_file_type_is_guessed(tiny: Model, micro_path: Path) -> None:
    model = load_model(micro_path, overrides={"general.file_type": None})
    assert model.ftype_name == "(guessed) Q4_K - Medium"
