"""Files of ``/slots/{id}?action=save``: a computed prefix of one model, versioned and with a checksum.

    8 bytes   "PYJETSLT"
    4 bytes   version, little-endian
    4 bytes   length of the header
    header    JSON: what the file belongs to (SlotFileOwner) and how much is in it
    tokens    int32, little-endian
    pages     as the device holds them
    state     likewise
    16 bytes  BLAKE2b of everything before
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pyjet.engine.snapshot import Snapshot

MAGIC = b"PYJETSLT"
VERSION = 1
DIGEST_BYTES = 16
MOST_HEADER_BYTES = 1 << 16
_PREFIX = struct.Struct("<8sII")


class SlotFileError(Exception):
    """The file cannot be used; the message says why, for the log."""


@dataclass(frozen=True)
class SlotFileOwner:
    """What must be equal for a file to be of use: the model and the layout of pages and states."""

    model: str  # fingerprint of the GGUF file
    layout: str  # device and KV types
    page_tokens: int
    page_bytes: int
    state_bytes: int


def write_slot_file(path: Path, owner: SlotFileOwner, snapshot: Snapshot) -> int:
    """Write a file, or leave what was there. Returns its size in bytes; raises OSError."""
    header = json.dumps({"owner": asdict(owner), "n_tokens": len(snapshot.tokens)}).encode()
    parts = (
        _PREFIX.pack(MAGIC, VERSION, len(header)),
        header,
        snapshot.tokens.astype("<i4").tobytes(),
        snapshot.pages.reshape(-1).data,
        snapshot.state.data,
    )
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(unfinished, "wb") as file:
            for part in parts:
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            size = file.tell()
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return size


def read_slot_file(path: Path, owner: SlotFileOwner) -> tuple[Snapshot, int]:
    """The prefix in a file and the file's size. Raises SlotFileError for every file that is not of this owner."""
    try:
        with open(path, "rb") as file:
            return _read(file, owner), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise SlotFileError(f"{path.name} cannot be read: {error.strerror or error}") from None


def _read(file: BinaryIO, owner: SlotFileOwner) -> Snapshot:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    magic, version, n_header = _PREFIX.unpack(_take(file, _PREFIX.size, digest))
    if magic != MAGIC:
        raise SlotFileError("this is no file of a pyjet slot")
    if version != VERSION:
        raise SlotFileError(f"the file has version {version}, this program reads version {VERSION}")
    if n_header > MOST_HEADER_BYTES:
        raise SlotFileError("the file is damaged: its header is too long")
    n_tokens = _check_header(_take(file, n_header, digest), owner)
    n_pages = -(-n_tokens // owner.page_tokens)
    # The size is known now, so a damaged number cannot make us allocate what the file does not hold.
    expected = 4 * n_tokens + n_pages * owner.page_bytes + owner.state_bytes + DIGEST_BYTES
    if os.fstat(file.fileno()).st_size - file.tell() != expected:
        raise SlotFileError("the file is damaged: it has not the size that its header says")
    tokens = np.frombuffer(_take(file, 4 * n_tokens, digest), "<i4").astype(np.int32)
    pages = np.frombuffer(_take(file, n_pages * owner.page_bytes, digest), np.uint8)
    state = np.frombuffer(_take(file, owner.state_bytes, digest), np.uint8)
    if file.read(DIGEST_BYTES) != digest.digest():
        raise SlotFileError("the file is damaged: its checksum is wrong")
    return Snapshot(tokens, pages.reshape(n_pages, owner.page_bytes), state)


def _take(file: BinaryIO, n: int, digest: Any) -> bytes:
    data = file.read(n)
    if len(data) < n:
        raise SlotFileError("the file is damaged: it ends too early")
    digest.update(data)
    return data


def _check_header(text: bytes, owner: SlotFileOwner) -> int:
    """The number of tokens."""
    try:
        header = json.loads(text)
        theirs = SlotFileOwner(**header["owner"])
        n_tokens = int(header["n_tokens"])
    except (ValueError, TypeError, KeyError, OverflowError):
        raise SlotFileError("the file is damaged: its header cannot be read") from None
    if theirs != owner:
        different = [name for name, value in asdict(owner).items() if getattr(theirs, name) != value]
        raise SlotFileError(f"the file was saved with another {', '.join(different)}")
    if n_tokens < 1:
        raise SlotFileError("the file is damaged: it holds no tokens")
    return n_tokens
