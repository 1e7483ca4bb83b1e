"""A model's tokens as llguidance wants them. Building it takes a second for 250,000 tokens, so it is done once."""

from __future__ import annotations

from llguidance import LLTokenizer, TokenizerWrapper

from pyjet.model.tokenizer import Tokenizer

# Tags of thoughts and calls are text to a grammar, whatever kind of token the file says they are.
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


class GrammarVocabulary:
    """``tokens[i]``: the bytes of token i in an answer; control tokens have none, except TAGS.

    ``backend``: llguidance's form. ``ends``: tokens that end an answer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.n_vocab = tokenizer.n_vocab
        self.ends = tokenizer.eog_ids
        tags = {token for tag in TAGS if (token := tokenizer.token_id(tag)) is not None} - self.ends
        self.special = {i for i in range(self.n_vocab) if tokenizer.is_special(i)} | self.ends
        self.special -= tags
        self.tokens = [
            b"" if i in self.special else tokenizer.token_bytes(i) for i in range(self.n_vocab)
        ]
        ends = sorted(self.ends, key=lambda token: (token != tokenizer.eos_id, token)) or [0]
        self.backend = LLTokenizer(
            TokenizerWrapper(_TokenTable(tokenizer, self.tokens, self.special, ends[0])),
            n_vocab=self.n_vocab,
            eos_token=ends,
        )


class _TokenTable:
    """What llguidance reads of a tokenizer; calling it encodes text in which nothing is a control token."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, tokens: list[bytes], special: set[int] | frozenset[int], eos: int) -> None:
        self.eos_token_id = eos
        self.special_token_ids = sorted(special)
        # Special tokens need distinct texts there.
        self.tokens = [
            tokenizer.token_text(i).encode() if i in special else piece for i, piece in enumerate(tokens)
        ]
        self._tokenizer = tokenizer

    def __call__(self, text: bytes | str) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return self._tokenizer.encode(text, parse_special=False)
