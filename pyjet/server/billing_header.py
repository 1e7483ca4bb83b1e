"""The line that Claude Code puts in front of its system prompt, with a value that changes from request to request.

It tells the model nothing, but a prompt that begins with it shares no prefix with the one before.
"""

from __future__ import annotations

import re

_PREFIX = "x-anthropic-billing-header:"
_STAMP = re.compile(r"\bcch=[^;\s]*;?")
_FIXED_STAMP = "cch=fffff;"


def without_billing_header(text: str) -> str:
    """One top-level text of a system prompt without what changes in its billing header.

    A text that is nothing but the header is dropped; in a text that goes on behind it the ``cch`` value becomes the
    same each time. Any other text stays as it is.
    """
    if not text.startswith(_PREFIX):
        return text
    stamp = _STAMP.search(text)
    if stamp is None:
        return text
    rest = text[stamp.end() :]
    return text[: stamp.start()] + _FIXED_STAMP + rest if rest.strip() else ""
