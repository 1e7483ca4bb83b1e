"""From parameters and prompts to an HTTP response, streamed or whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from flask import Response, request

from pyjet.server import jsonio
from pyjet.server.choice import Result
from pyjet.server.completion_params import CompletionParams
from pyjet.server.generation import ClientGone, Job
from pyjet.server.http import client_gone
from pyjet.server.recorded_stream import start_recorded_stream
from pyjet.server.sse import StreamFormat, start_stream

if TYPE_CHECKING:
    from pyjet.server.service import Service


class AnswerFormat(StreamFormat, Protocol):
    """How one API shows a generation, as events and as one object."""

    def response(self, results: Sequence[Result]) -> Any:
        """The JSON value of an answer that is not streamed."""
        ...


def answer(service: Service, params: CompletionParams, job: Job, form: AnswerFormat) -> Response:
    """Generate and respond. ApiError when a generation fails before anything was sent."""
    if service.prompt_log is not None:
        for prompt in job.prompts:
            service.prompt_log.write(service.tokenizer.decode(prompt))
    gone = client_gone()
    conversation = request.headers.get("X-Conversation-Id", "")
    if params.stream and conversation:
        return start_recorded_stream(job, form, gone, params.sse_ping_interval, service.streams, conversation)
    if params.stream:
        return start_stream(job, form, gone, params.sse_ping_interval)
    try:
        return jsonio.response(form.response(job.run(gone)))
    except ClientGone:
        return Response(status=499)  # nobody reads it
