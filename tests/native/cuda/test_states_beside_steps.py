"""States copied beside a step of a GPU: the tests of tests/native/test_states_beside_steps.py."""

from tests.native.test_states_beside_steps import *  # noqa: F403
