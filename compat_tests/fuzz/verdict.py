"""Whether an answer to a bad request is one that a server may give."""

from __future__ import annotations

import json

from compat_tests.fuzz.mutate import Request

ALLOWED = {200, 204, 400, 401, 403, 404, 413, 415, 500, 501}


def fault(request: Request, status: int, body: bytes) -> str | None:
    """What is wrong with an answer; None: nothing. 503 is for ``/slots?fail_on_no_slot=1`` alone: all of them work.

    llama-server answers some wrong requests with 500, and so does pyjet: messages and tools that cannot be read, what
    chat templates raise. Those say what is wrong with the request; an internal error does not.
    """
    if status not in ALLOWED and not (status == 503 and request.path.startswith("/slots?")):
        return f"status {status}"
    if status < 400 or request.method == "HEAD":
        return None
    try:
        error = json.loads(body)["error"]
        message = error["message"]
    except (ValueError, KeyError, TypeError):
        return f"status {status} without an error object: {body[:200]!r}"
    if not isinstance(message, str) or not message:
        return f"status {status} without a message"
    return message if message.startswith("internal error") else None
