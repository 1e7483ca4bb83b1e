"""Late masks on a GPU, which waits for them: the tests of tests/native/test_late_masks.py."""

from tests.native.test_late_masks import *  # noqa: F403
