"""The scheduler side of the engine: token ids in, token ids out. It never sees text."""

from __future__ import annotations
