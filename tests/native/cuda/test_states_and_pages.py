"""Copies of states and pages on a GPU: the tests of tests/native/test_states_and_pages.py."""

from tests.native.test_states_and_pages import *  # noqa: F403
