"""How text is cut into words before byte-pair encoding, by the name in tokenizer.ggml.pre."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from pyjet.model import word_patterns as words
from pyjet.model.errors import ModelError


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


FAMILIES = {
    ("default",): PreTokenizer(words.DEFAULT),
    ("qwen35",): PreTokenizer((words.QWEN35,)),
    (
        "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2",
    ): PreTokenizer((words.QWEN2,)),
    (
        "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
    ): PreTokenizer((words.LLAMA3,), ignore_merges=True, add_bos=True),
    ("dbrx", "smaug-bpe", "chatglm-bpe"): PreTokenizer((words.LLAMA3,)),
    ("glm4", "glm5"): PreTokenizer((words.LLAMA3,), ignore_merges=True),
    (
        "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v1-en", "gigachat", "a.x-4.0", "mellum", "modern-bert",
        "roberta-bpe", "exaone4", "mpt", "olmo", "jais", "trillion", "granite-docling",
    ): PreTokenizer((words.GPT2,)),
    (
        "starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2",
    ): PreTokenizer(words.DIGITS),
    ("falcon",): PreTokenizer(words.FALCON),
    ("deepseek-llm",): PreTokenizer(words.DEEPSEEK_LLM),
    ("deepseek-coder",): PreTokenizer(words.DEEPSEEK_CODER),
    ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"): PreTokenizer(words.DEEPSEEK_V3),
    ("tekken",): PreTokenizer((words.TEKKEN,), ignore_merges=True, add_bos=True),
    ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"): PreTokenizer((words.GPT4O,)),
    ("minicpm5",): PreTokenizer(words.MINICPM5, ignore_merges=True),
    ("seed-coder",): PreTokenizer((words.SEED_CODER,)),
    ("ufakzeka",): PreTokenizer((words.UFAKZEKA,)),
    ("bailingmoe", "bailingmoe2", "llada-moe"): PreTokenizer((words.BAILING,)),
    ("exaone-moe",): PreTokenizer((words.EXAONE_MOE,)),
    ("poro-chat", "bloom", "gpt3-finnish"): PreTokenizer(words.BLOOM),
    ("viking",): PreTokenizer(words.VIKING),
    ("jais-2",): PreTokenizer((words.JAIS2,)),
    ("laguna",): PreTokenizer(words.LAGUNA),
}  # fmt: skip

PRE_TOKENIZERS = {name: pre for names, pre in FAMILIES.items() for name in names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of this name; an empty name means "default". Raises ModelError for an unknown one."""
    try:
        return PRE_TOKENIZERS[name or "default"]
    except KeyError:
        raise ModelError(
            f"metadata key 'tokenizer.ggml.pre' is {name!r}, which is not supported; these are: "
            f"{', '.join(sorted(PRE_TOKENIZERS))}"
        ) from None
