"""Drafts on a GPU: the tests of tests/engine/test_real_speculation.py."""

from tests.engine.test_real_speculation import *  # noqa: F403
