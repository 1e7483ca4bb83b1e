"""Grammars that answers must follow: GBNF and JSON schemas, compiled by llguidance into masks of allowed tokens."""
