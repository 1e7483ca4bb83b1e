"""Drafts of the MTP block on a GPU: the tests of tests/native/test_drafts.py."""

from tests.native.test_drafts import *  # noqa: F403
