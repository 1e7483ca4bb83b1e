"""Four agents at work make the server read hardly anything twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.conversation import play
from bench.conversation_outcome import table, totals
from pyjet.assets import default_model_path
from pyjet.engine.local import LocalEngine
from pyjet.engine.settings import EngineSettings
from pyjet.server.options import ServerOptions
from pyjet.server.service import Service
from tests.server.live import serving
from tests.server.scripted import tiny_model, tiny_template, tiny_tokenizer
from tests.server.test_end_to_end import has_library

pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    settings = EngineSettings(str(default_model_path()), n_ctx_slot=8192, n_ctx_total=4 * 8192, n_threads=2)
    with LocalEngine.load(settings) as engine:
        service = Service(tiny_model(), tiny_tokenizer(), tiny_template(), engine, ServerOptions(), model_id="tiny")
        with serving(service) as port:
            yield f"http://127.0.0.1:{port}"


def test_what_was_processed_before_is_not_read_again(url: str) -> None:
    turns = play(url)
    figures = totals(turns)
    assert figures["counted_otherwise"] == 0
    assert figures["requests"] == 41
    assert figures["answers_with_calls"] >= 15  # the script is about agents that call tools
    assert figures["is_kept"], f"{figures}\n{table(turns)}"
