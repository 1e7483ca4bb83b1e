"""Batch invariance on a GPU: the tests of tests/native/test_batch_invariance.py."""

from tests.native.test_batch_invariance import *  # noqa: F403
