"""llama.cpp's own tokenizer test vectors, and its tokenizer as oracle on larger texts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gguf
import pytest

from pyjet.assets import default_model_path
from pyjet.model import Tokenizer
from pyjet.model.pretokenizers import FAMILIES
from pyjet.model.reader import open_gguf
from tests.support.hang_guard import hang_guard
from tests.support.llama_vocab import LlamaVocab
from tests.support.peer import library_or_skip, source_or_skip

SEPARATOR = "\n__ggml_vocab_test__\n"
SEED = 7
ALPHABETS = (
    " \t\n\r\u00a0\u3000\u2028\x85\x0b\x0c\x1c\0",
    "abcXYZ019'.,!?-_sStTmMlLdDrReEvV\u017f\u212a",
    "".join(map(chr, range(0x20, 0x2FF))),
    "".join(map(chr, range(0x300, 0x3000))),
    "的一是नमस्ते한국어日本語שלום👨‍👩‍👧é\u0301",
)
WORDS = (
    "the ", " def", "\n\n", "    ", " '", "'ll", "12345", "<|im_start|>", "<|im_end|>", "<think>", "</s>", "<|im_",
    "<tool_call>", "<|endoftext|>",
)  # fmt: skip


@pytest.fixture(scope="module")
def vocabularies() -> Path:
    return source_or_skip() / "models"


CASES = "HelloWorld camelCase XMLHttp don't DON'T 1234567 3.14 über Straße ÉCOLE école МоСква 你好 123\u3000x\u2028y"


def load(path: Path) -> Tokenizer:
    return Tokenizer.from_metadata(open_gguf(path)[0].metadata)


VECTORS = (
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "mpt",
    "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(vocabularies: Path, name: str) -> None:
    path = vocabularies / f"ggml-vocab-{name}.gguf"
    tokenizer = load(path)
    texts = Path(f"{path}.inp").read_bytes().decode("utf-8").removesuffix(SEPARATOR).split(SEPARATOR)
    expected = [[int(item) for item in line.split()] for line in Path(f"{path}.out").read_text().splitlines()]
    assert len(texts) == len(expected) > 40
    for text, ids in zip(texts, expected):
        assert tokenizer.encode(text, parse_special=False) == ids, repr(text)
        decoded = tokenizer.decode(ids)
        assert decoded == (" " + text if text and tokenizer.vocab_type == 1 else text)


def test_a_large_vocabulary_and_a_long_text_do_not_hang(vocabularies: Path) -> None:
    with hang_guard():
        metadata = open_gguf(vocabularies / "ggml-vocab-qwen35.gguf")[0].metadata
    with hang_guard():
        tokenizer = Tokenizer.from_metadata(metadata)
    text = Path(gguf.constants.__file__).read_text(encoding="utf-8")[:80_000]
    with hang_guard():
        assert len(tokenizer.encode(text)) > 15_000


def random_text(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.choice([3, 20, 120])):
        kind = rng.random()
        if kind < 0.3:
            parts.append(rng.choice(WORDS))
        elif kind < 0.8:
            parts.append("".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(1, 4))))
        else:
            point = rng.randrange(0x110000)
            parts.append(chr(point) if not 0xD800 <= point < 0xE000 else "?")
    return "".join(parts)


def write_vocabulary(path: Path, pre: str) -> Path:
    """The embedded model's metadata with another pre-tokenizer, without tensors."""
    writer = gguf.GGUFWriter(path, "qwen35")
    metadata: dict[str, Any] = {**open_gguf(default_model_path())[0].metadata, "tokenizer.ggml.pre": pre}
    adders = {bool: writer.add_bool, str: writer.add_string, list: writer.add_array}
    adders |= {int: writer.add_uint32, float: writer.add_float32}
    for key, value in metadata.items():
        if key != "general.architecture":
            adders[type(value)](key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def oracle_of(path: Path) -> LlamaVocab:
    library_or_skip()
    return LlamaVocab(path)


@pytest.fixture(params=["qwen35", "qwen2", "llama-bpe", "gpt-2", "default"])
def oracle_pair(request: pytest.FixtureRequest, tmp_path: Path):
    path = write_vocabulary(tmp_path / "vocab.gguf", request.param)
    with oracle_of(path) as oracle:
        yield load(path), oracle


def test_source_code_like_llama(oracle_pair: tuple[Tokenizer, LlamaVocab]) -> None:
    tokenizer, oracle = oracle_pair
    for file in sorted(Path(gguf.__file__).parent.glob("*.py"))[:4]:
        text = file.read_text(encoding="utf-8")[:60_000]
        assert tokenizer.encode(text) == oracle.encode(text)


def check_mixed_unicode(tokenizer: Tokenizer, oracle: LlamaVocab, n_texts: int) -> None:
    rng = random.Random(SEED)
    for _ in range(n_texts):
        text, parse = random_text(rng), rng.random() < 0.5
        assert tokenizer.encode(text, parse_special=parse) == oracle.encode(text, parse_special=parse), repr(text)


def test_mixed_unicode_like_llama(oracle_pair: tuple[Tokenizer, LlamaVocab]) -> None:
    check_mixed_unicode(*oracle_pair, n_texts=300)
    tokenizer, rng = oracle_pair[0], random.Random(SEED)
    for _ in range(100):
        assert tokenizer.decode(tokenizer.encode(text := random_text(rng))) == text


@pytest.mark.parametrize("pre", [names[0] for names in FAMILIES])
def test_every_pretokenizer_like_llama(pre: str, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "vocab.gguf", pre)
    tokenizer = load(path)
    with oracle_of(path) as oracle:
        check_mixed_unicode(tokenizer, oracle, n_texts=60)
        code = Path(gguf.constants.__file__).read_text(encoding="utf-8")[:20_000]
        for text in (code, CASES):
            assert tokenizer.encode(text, add_special=True) == oracle.encode(text, add_special=True)


@pytest.mark.parametrize("name", ["llama-spm", "phi-3", "baichuan", "gemma-4"])
def test_marked_spaces_like_llama(vocabularies: Path, name: str) -> None:
    path = vocabularies / f"ggml-vocab-{name}.gguf"
    tokenizer = load(path)
    with oracle_of(path) as oracle:
        check_mixed_unicode(tokenizer, oracle, n_texts=300)
        code = Path(gguf.constants.__file__).read_text(encoding="utf-8")[:40_000]
        for text in (code, CASES, "", " ", "<s>a</s>  b<|end|> \n c", "\n\n\n" * 20):
            assert tokenizer.encode(text, add_special=True) == oracle.encode(text, add_special=True), text[:50]
        check_every_token(tokenizer, oracle)


def test_every_token_like_llama(oracle_pair: tuple[Tokenizer, LlamaVocab]) -> None:
    check_every_token(*oracle_pair)


def check_every_token(tokenizer: Tokenizer, oracle: LlamaVocab) -> None:
    assert (tokenizer.n_vocab, tokenizer.bos_id, tokenizer.eos_id) == (oracle.n_tokens, oracle.bos_id, oracle.eos_id)
    assert tokenizer.encode("a", add_special=True) == oracle.encode("a", add_special=True)
    for index in range(tokenizer.n_vocab):
        assert tokenizer.token_bytes(index) == oracle.token_bytes(index)
        assert (index in tokenizer.eog_ids) == oracle.is_eog(index)
        visible = b"" if tokenizer.is_special(index) else tokenizer.token_bytes(index)
        assert visible == oracle.token_bytes(index, special=False)
