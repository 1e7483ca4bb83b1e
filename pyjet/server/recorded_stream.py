"""A stream that goes on without its client: a thread makes it, clients read the record."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from pyjet.server.generation import Job
from pyjet.server.sse import StreamFormat, StreamResponse, open_frames
from pyjet.server.stream_record import PlaceLost, StreamRecord
from pyjet.server.stream_records import StreamRecords

logger = logging.getLogger(__name__)


def start_recorded_stream(
    job: Job,
    form: StreamFormat,
    client_gone: Callable[[], bool],
    ping_seconds: int,
    records: StreamRecords,
    conversation: str,
) -> StreamResponse:
    """Begin a generation and answer with its events, which are kept for whoever asks for the conversation.

    Only ``records`` can stop it from then on. ApiError when it fails before its first event; nothing is kept then.
    """
    recording: list[StreamRecord] = []
    frames = open_frames(job, form, lambda: bool(recording) and recording[0].is_cancelled, ping_seconds)
    recording.append(records.start(conversation))
    reader = _quiet(recording[0].read_first(client_gone))
    threading.Thread(target=_record, args=(frames, recording[0]), name="record-stream", daemon=True).start()
    return StreamResponse(reader)


def replay(record: StreamRecord, position: int, client_gone: Callable[[], bool]) -> StreamResponse:
    """The stream from ``position`` (bytes) on, and what it goes on to say."""
    return StreamResponse(_quiet(record.read(position, client_gone)))


def _record(frames: Iterator[bytes], record: StreamRecord) -> None:
    try:
        for data in frames:
            record.append(data)
    except Exception:
        logger.exception("a recorded stream failed")
    finally:
        close = getattr(frames, "close", None)
        if close is not None:
            close()
        record.finish()


def _quiet(reader: Iterator[bytes]) -> Iterator[bytes]:
    """A reader that is too slow for what is kept gets no more: its stream ends short."""
    try:
        yield from reader
    except PlaceLost:
        logger.warning("a client reads so slowly that its place in a recorded stream is gone")
