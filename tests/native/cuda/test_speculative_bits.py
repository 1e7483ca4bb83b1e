"""Log-probabilities of verified rows on a GPU: the tests of tests/engine/test_speculative_bits.py."""

from tests.engine.test_speculative_bits import *  # noqa: F403
