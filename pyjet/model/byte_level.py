"""The alphabet of byte-level BPE: each byte has one printable character (GPT-2's table)."""

from __future__ import annotations


def _alphabet() -> str:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


#: BYTE_ALPHABET[b] is the character that stands for byte b.
BYTE_ALPHABET = _alphabet()

_BYTE_OF = {char: bytes([byte]) for byte, char in enumerate(BYTE_ALPHABET)}


def piece_bytes(text: str) -> bytes:
    """Bytes that a normal token's vocabulary string stands for.

    A character outside the alphabet becomes a visible marker, as llama-server prints it.
    """
    return b"".join(_BYTE_OF.get(char) or _marker(char, text) for char in text)


def _marker(char: str, text: str) -> bytes:
    return f"[UNK_BYTE_0x{char.encode().hex()}{text}]".encode()
