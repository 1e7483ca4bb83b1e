"""File names that clients may choose: one plain name, the same on every file system, and no way out of a directory."""

from __future__ import annotations

_MOST_BYTES = 255
_FORBIDDEN = frozenset('/\\:*?"<>|')
# characters that some systems turn into a dot or a slash, the byte order mark, and what broken UTF-8 is replaced by
_LOOKALIKES = frozenset("\uff0e\u2215\u2216\ufeff\ufffd")


def is_plain_file_name(name: str) -> bool:
    """llama-server's rules for names of saved slots."""
    if not name or len(name.encode("utf-8", "surrogatepass")) > _MOST_BYTES:
        return False
    if name[0] == " " or name[-1] in " ." or ".." in name:
        return False
    return not any(_is_forbidden(character) for character in name)


def _is_forbidden(character: str) -> bool:
    code = ord(character)
    is_control = code < 0x20 or 0x7F <= code < 0xA0
    is_surrogate = 0xD800 <= code < 0xE000
    return is_control or is_surrogate or character in _FORBIDDEN or character in _LOOKALIKES
