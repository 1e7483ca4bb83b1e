"""Streams that were started with ``X-Conversation-Id``: read again, look up, stop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request

from pyjet.server import jsonio
from pyjet.server.errors import invalid_request, not_found
from pyjet.server.http import client_gone
from pyjet.server.recorded_stream import replay

if TYPE_CHECKING:
    from pyjet.server.service import Service
    from pyjet.server.stream_record import StreamRecord
    from pyjet.server.stream_records import StreamRecords

_NUMBER = re.compile(r"\s*\+?(\d{1,18})")


def register(app: Flask, service: Service) -> None:
    """Add ``/v1/stream`` (GET, DELETE) and ``/v1/streams/lookup``."""
    records = service.streams

    def read() -> Response:
        return _read(records)

    def stop() -> Response:
        records.remove(_conversation())
        return Response(status=204, content_type="application/json")

    def lookup() -> Response:
        return jsonio.response([_entry(record) for record in records.matching(_names(jsonio.request_value()))])

    app.add_url_rule("/v1/stream", "stream_read", read, methods=["GET"])
    app.add_url_rule("/v1/stream", "stream_stop", stop, methods=["DELETE"])
    app.add_url_rule("/v1/streams/lookup", "stream_lookup", lookup, methods=["POST"])


def _conversation() -> str:
    name = request.args.get("conv_id", "")
    if not name:
        raise invalid_request("Missing conversation id in path")
    return name


def _read(records: StreamRecords) -> Response:
    record = records.find(_conversation())
    if record is None:
        raise not_found()
    text = request.args.get("from", "")
    number = _NUMBER.match(text or "0")
    if number is None:
        raise invalid_request("Invalid 'from' offset")
    position = int(number[1])
    if not record.has(position):
        raise invalid_request("Stream offset lost, please restart")
    return replay(record, position, client_gone())


def _names(body: Any) -> list[str]:
    """``conversation_ids``; only who knows a name learns anything."""
    names = body.get("conversation_ids") if isinstance(body, dict) else None
    return [name for name in names if isinstance(name, str) and name] if isinstance(names, list) else []


def _entry(record: StreamRecord) -> dict[str, Any]:
    return {
        "conversation_id": record.conversation,
        "is_done": record.is_done,
        "total_bytes": record.n_bytes,
        "started_at": record.started_at,
        "completed_at": record.completed_at,
    }
