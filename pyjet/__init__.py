"""pyjet: a local serving engine for coding agents, a drop-in for llama-server."""

from __future__ import annotations

__version__ = "0.1.0"
