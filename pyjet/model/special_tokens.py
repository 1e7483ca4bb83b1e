"""Texts by which tokens with a role are found when the metadata does not name them.

The lists are what llama-server recognises, so both servers stop at the same tokens.
"""

from __future__ import annotations

END_OF_TURN = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
    "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
)  # fmt: skip

END_OF_MESSAGE = ("<|eom_id|>",)

#: Every one of these that the vocabulary has ends a generation.
END_OF_GENERATION = (
    *END_OF_TURN, *END_OF_MESSAGE, "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "[EOS]", "<eos>",
    "<turn|>", "<|tool_response>", "[e~[",
)  # fmt: skip

#: Channel markers of some chat formats: always shown, whatever type the file gives them.
ALWAYS_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

FIM_PREFIX = (
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
    "<|prefix|>",
)  # fmt: skip
FIM_SUFFIX = (
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
    "<|suffix|>",
)  # fmt: skip
FIM_MIDDLE = (
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
    "<|middle|>",
)  # fmt: skip
FIM_PAD = ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")
FIM_REPOSITORY = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
FIM_SEPARATOR = ("<|file_sep|>",)

#: role -> (metadata keys without "tokenizer.ggml.", later ones deprecated; texts that are looked up)
ROLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bos": (("bos_token_id",), ()),
    "eos": (("eos_token_id",), ()),
    "unk": (("unknown_token_id",), ()),
    "pad": (("padding_token_id",), ()),
    "eot": (("eot_token_id",), END_OF_TURN),
    "eom": (("eom_token_id",), END_OF_MESSAGE),
    "fim_pre": (("fim_pre_token_id", "prefix_token_id"), FIM_PREFIX),
    "fim_suf": (("fim_suf_token_id", "suffix_token_id"), FIM_SUFFIX),
    "fim_mid": (("fim_mid_token_id", "middle_token_id"), FIM_MIDDLE),
    "fim_pad": (("fim_pad_token_id",), FIM_PAD),
    "fim_rep": (("fim_rep_token_id",), FIM_REPOSITORY),
    "fim_sep": (("fim_sep_token_id",), FIM_SEPARATOR),
}

#: Roles whose token ends a generation, besides END_OF_GENERATION.
ENDING_ROLES = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")

#: What llama-server assumes for a vocabulary that names no such token, by tokenizer.ggml.model: GPT-2's and Llama's
#: layouts.
DEFAULT_IDS: dict[str, dict[str, int]] = {
    "gpt2": {"bos": 11, "eos": 11},
    "llama": {"bos": 1, "eos": 2, "unk": 0},
}

#: Values of tokenizer.ggml.pre whose models have no BOS unless the file names one.
WITHOUT_BOS = ("chatglm-bpe", "glm4", "glm5")

#: Texts in a model's name (lower case): blanks behind its special tokens are dropped, but not behind these.
STRIPS_RIGHT = ("phi-3", "phi3")
NEVER_STRIPS = ("<unk>", "<s>", "<|endoftext|>")
