"""`/health` tells load balancers the truth about an engine that hangs, and only that path does."""

from __future__ import annotations

import pytest

from pyjet.engine.stall import RunningStep, hung_step
from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, post, said


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
def test_an_engine_that_hangs_is_unhealthy_until_it_goes_on(path: str) -> None:
    engine = ScriptedEngine(said("Hello"))
    client = make_client(engine)
    assert client.get(path).get_json() == {"status": "ok"}
    engine.stall = hung_step(RunningStep(17, 12, 4, 130.0), 120.0)
    answer = client.get(path)
    assert answer.status_code == 503
    assert answer.get_json()["error"] == {
        "code": 503,
        "message": "the engine hangs: step 17 (12 rows of 4 requests) has been running for 130 s, more than the 120 s "
        "that one may take",
        "type": "unavailable_error",
    }
    assert [client.get(other).status_code for other in ("/slots", "/props", "/v1/models")] == [200, 200, 200]
    assert post(client, "/completion", {"prompt": "x"})["content"] == "Hello", "it may go on at any time"
    engine.stall = None
    assert client.get(path).get_json() == {"status": "ok"}
