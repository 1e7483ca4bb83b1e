"""How text is cut into words before byte-pair encoding, by the name in tokenizer.ggml.pre.

The patterns are those of the models' own tokenizer.json files, in two respects adjusted to what llama-server
does: contractions ignore case in ASCII only, and code points that Unicode assigned after version 15 count as
neither letters, marks nor numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from pyjet.model.errors import ModelError

# Oniguruma's tables are newer than Unicode 15. These ranges cover every letter, mark and number added since; the
# rest of what they cover is unassigned.
_ADDED_AFTER_15 = (
    (0x897, 0x897), (0x1B4E, 0x1B4F), (0x1B7F, 0x1B7F), (0x1C89, 0x1C8A), (0xA7CB, 0xA7CD), (0xA7DA, 0xA7DC),
    (0x105C0, 0x105F3), (0x10D40, 0x10D85), (0x10EC2, 0x10EFC), (0x11380, 0x113E2), (0x116D0, 0x116E3),
    (0x11BC0, 0x11BF9), (0x11F5A, 0x11F5A), (0x13460, 0x143FA), (0x16100, 0x16139), (0x16D40, 0x16D79),
    (0x18CFF, 0x18CFF), (0x1CCF0, 0x1CCF9), (0x1E5D0, 0x1E5FF),
)  # fmt: skip


def _category(name: str) -> str:
    """A regex set of one Unicode category as of version 15; usable alone and inside another set."""
    newer = "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in _ADDED_AFTER_15)
    return f"[\\p{{{name}}}&&[^{newer}]]"


_L, _M, _N, _P = (_category(name) for name in "LMNP")
_CONTRACTION = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = f"'s|'t|'re|'ve|'m|'ll|'d| ?{_L}+| ?{_N}+| ?[^\\s{_L}{_N}]+|\\s+(?!\\S)|\\s+"
_LLAMA3 = f"{_CONTRACTION}|[^\\r\\n{_L}{_N}]?{_L}+|{_N}{{1,3}}| ?[^\\s{_L}{_N}]+[\\r\\n]*|{_BLANKS}"
_QWEN2 = f"{_CONTRACTION}|[^\\r\\n{_L}{_N}]?{_L}+|{_N}| ?[^\\s{_L}{_N}]+[\\r\\n]*|{_BLANKS}"
_QWEN35 = f"{_CONTRACTION}|[^\\r\\n{_L}{_N}]?[{_L}{_M}]+|{_N}| ?[^\\s{_L}{_M}{_N}]+[\\r\\n]*|{_BLANKS}"
_DEFAULT = (f"[{_P}\\$\\+<=>\\^~\\|]+", _GPT2, f"{_N}+", "[0-9][0-9][0-9]")


@dataclass(frozen=True)
class PreTokenizer:
    """patterns are applied one after the other, each to the pieces the one before left."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is a token stays whole even if merges would not build it
    add_bos: bool = False  # default of tokenizer.ggml.add_bos_token

    def build(self) -> Sequence:
        """The pre-tokenizer of the `tokenizers` library; its words are byte-level encoded."""
        splits = [Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])


_FAMILIES = {
    ("default",): PreTokenizer(_DEFAULT),
    ("qwen35",): PreTokenizer((_QWEN35,)),
    ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"): PreTokenizer((_QWEN2,)),
    (
        "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
    ): PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    (
        "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v1-en", "gigachat",
        "a.x-4.0", "mellum", "modern-bert", "roberta-bpe", "exaone4",
    ): PreTokenizer((_GPT2,)),
}  # fmt: skip

PRE_TOKENIZERS = {name: pre for names, pre in _FAMILIES.items() for name in names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of this name; an empty name means "default". Raises ModelError for an unknown one."""
    try:
        return PRE_TOKENIZERS[name or "default"]
    except KeyError:
        raise ModelError(
            f"metadata key 'tokenizer.ggml.pre' is {name!r}, which is not supported; these are: "
            f"{', '.join(sorted(PRE_TOKENIZERS))}"
        ) from None
