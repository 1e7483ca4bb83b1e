"""Constrained answers on a GPU: the tests of tests/engine/test_real_constrained.py."""

from tests.engine.test_real_constrained import *  # noqa: F403
