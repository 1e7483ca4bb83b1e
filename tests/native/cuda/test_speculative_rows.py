"""Speculative rows on a GPU: the tests of tests/native/test_speculative_rows.py."""

from tests.native.test_speculative_rows import *  # noqa: F403
