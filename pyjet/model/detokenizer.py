"""Token ids to text while they are generated."""

from __future__ import annotations

import codecs

from pyjet.model.tokenizer import Tokenizer


class Detokenizer:
    """Text of one stream of tokens, never a broken character.

    The concatenation of all push() results and finish() equals Tokenizer.decode of the same ids. Constant work
    per token.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool = False) -> None:
        """special: control tokens give their text; otherwise they give nothing."""
        self._tokenizer = tokenizer
        self._special = special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def pending(self) -> bytes:
        """Bytes of a character that is not complete yet."""
        return self._decoder.getstate()[0]

    def push(self, index: int) -> str:
        """Text that became complete with this token; "" while a character is incomplete.

        Bytes that can never become valid UTF-8 give U+FFFD at once.
        """
        if not self._special and self._tokenizer.is_special(index):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(index))

    def finish(self) -> str:
        """The rest: U+FFFD if the stream ended inside a character, else "". The object is ready for a new stream."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
