"""Damaged and malicious files: a ModelError that names the file, or a valid model. Nothing else, and no hang."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyjet.model import ModelError, Tokenizer, load_model
from pyjet.model.architecture import check_tensors
from tests.support.gguf_patch import N_KEYS_AT, N_TENSORS_AT, find_spots, patched
from tests.support.hang_guard import hang_guard

SEED = 20240607
HUGE = (1 << 24, (1 << 31) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
MAX_BYTES = 64 << 20


@pytest.fixture(scope="module")
def original(micro_path: Path) -> bytes:
    return micro_path.read_bytes()


def outcome(folder: Path, data: bytes) -> str:
    """Load `data` as a file: "valid", or the error's message. Fails the test on any other outcome."""
    path = folder / "mutant.gguf"
    path.write_bytes(data)
    try:
        with hang_guard():
            return _loaded(path)
    except ModelError as error:
        assert str(path) in str(error)
        return str(error)
    finally:
        path.unlink()  # an open memory map keeps its file; the next mutant gets a new one


def _loaded(path: Path) -> str:
    model = load_model(path, check_tensors=True)
    check_tensors(model.tensors, model.hyperparams)
    assert all(len(tensor.data) == tensor.n_bytes for tensor in model.tensors.values())
    return tokenizer_outcome(model.metadata)


def tokenizer_outcome(metadata: dict) -> str:
    try:
        tokenizer = Tokenizer.from_metadata(metadata)
    except ModelError as error:
        assert "tokenizer" in str(error)
        return str(error)
    assert all(0 <= index < tokenizer.n_vocab for index in tokenizer.encode("plain <|im_end|> text é"))
    assert isinstance(tokenizer.decode(range(tokenizer.n_vocab)), str)
    return "valid"


def truncations(data: bytes) -> Iterator[bytes]:
    _, _, end = find_spots(data)
    for length in {*range(0, 64, 3), *range(64, end + 64, end // 60), end, end + 1, len(data) // 2, len(data) - 1}:
        yield data[:length]


def flips(data: bytes) -> Iterator[bytes]:
    rng = random.Random(SEED)
    _, _, end = find_spots(data)
    for _ in range(250):
        at = rng.randrange(end)
        yield patched(data, at, "B", data[at] ^ rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 255]))


def huge_counts(data: bytes) -> Iterator[bytes]:
    keys, tensors, _ = find_spots(data)
    places = [N_TENSORS_AT, N_KEYS_AT, tensors[0].name_length_at, tensors[-1].name_length_at]
    places += [spot.key_length_at for spot in keys[:3]]
    places += [spot.count_at for spot in keys if spot.count_at is not None]
    for at in places:
        for value in HUGE:
            yield patched(data, at, "<Q", value)


def wrong_types(data: bytes) -> Iterator[bytes]:
    keys, tensors, _ = find_spots(data)
    for spot in keys:
        for kind in (0, 4, 6, 7, 8, 9, 10, 12, 13, 0xFFFFFFFF):
            yield patched(data, spot.type_at, "<I", kind)
    for row in tensors[::5]:
        for kind in (0, 1, 2, 4, 14, 16, 19, 24, 28, 39, 99, 0xFFFFFFFF):
            yield patched(data, row.type_at, "<I", kind)


def wrong_shapes(data: bytes) -> Iterator[bytes]:
    _, tensors, _ = find_spots(data)
    for row in tensors[::5]:
        for n_dims in (0, 3, 5, 1 << 31):
            yield patched(data, row.n_dims_at, "<I", n_dims)
        for size in (0, 1, 255, 512, 1 << 32, (1 << 64) - 1):
            yield patched(data, row.shape_at, "<Q", size)
        for offset in (1, 32, len(data), (1 << 64) - 32):
            yield patched(data, row.offset_at, "<Q", offset)


def wrong_sizes(data: bytes) -> Iterator[bytes]:
    keys, _, _ = find_spots(data)
    for spot in keys:
        if spot.key.startswith("qwen35.") and spot.count_at is None:
            for value in (0, 1, 3, 17, 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1):
                yield patched(data, spot.value_at, "<I", value)


FAMILIES = [truncations, flips, huge_counts, wrong_types, wrong_shapes, wrong_sizes]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_mutants_are_refused_or_valid(family, original: bytes, tmp_path: Path) -> None:
    results = [outcome(tmp_path, mutant) for mutant in family(original)]
    refused = [result for result in results if result != "valid"]
    assert len(results) >= 40
    assert len(refused) >= len(results) // 5, "most of these files are unusable"


def test_there_are_at_least_200_mutants(original: bytes) -> None:
    assert sum(1 for family in FAMILIES for _ in family(original)) >= 200


def test_all_truncations_are_refused(original: bytes, tmp_path: Path) -> None:
    assert all(outcome(tmp_path, mutant) != "valid" for mutant in truncations(original))


def test_huge_counts_cost_no_memory(original: bytes, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        for mutant in huge_counts(original):
            assert outcome(tmp_path, mutant) != "valid"
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


def test_noise_and_other_files_are_refused(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for data in (b"", b"G", b"GGUF", b"GGUF" + bytes(60), rng.randbytes(4096), b"PK\x03\x04" + bytes(100)):
        assert outcome(tmp_path, data) != "valid"
    assert "big-endian" in outcome(tmp_path, b"GGUF\x00\x00\x00\x03" + bytes(64))
    assert "version 9" in outcome(tmp_path, b"GGUF\x09\x00\x00\x00" + bytes(64))


@pytest.mark.parametrize("name", [".", "missing.gguf"])
def test_paths_that_are_no_files(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot open"):
        load_model(tmp_path / name)
