"""The one exception of pyjet.model."""

from __future__ import annotations


class ModelError(Exception):
    """A model file that cannot be used.

    The message names the file, tensor or metadata key, says what is wrong with it and what would work.
    """
