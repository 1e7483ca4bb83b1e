"""The MTP block on a GPU: the tests of tests/native/test_mtp.py."""

from tests.native.test_mtp import *  # noqa: F403
