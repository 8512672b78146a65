"""The answers of a worker, as bytes and back.

Pickle can call any function. A worker runs templates of strangers, and if one of them ever takes over its process, it
must not reach the caller's. So an answer is unpickled with a white list: the results and errors of this package, which
hold only plain data. Everything else is an error. Requests go the other way, from the caller, and are plain pickles.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any, NamedTuple

from turnwise import errors
from turnwise.errors import TurnwiseError

PROTOCOL = 5
LENGTH = struct.Struct(">Q")  # before each request and each answer
READY = b"R"  # the first byte that a worker sends
FUNCTION = "function"  # in place of a verb: a function of a module is called
KNOWN_NAMES = {
    "builtins": {"range"},
    "datetime": {"datetime"},
    "turnwise.engine.provenance.media": {"MediaPart"},
    "turnwise.engine.provenance.rendering": {"Origin", "Piece", "_restore_rendering"},
    "turnwise.engine.runtime.values": {"Safe"},  # the text of a piece that was marked `|safe`
    "turnwise.errors": {
        "_restore",
        *(name for name, value in vars(errors).items() if isinstance(value, type)),
    },
    "turnwise.messages.types": {"Change"},
    "turnwise.replies.events": {"Attempt", "Event", "Message", "Span"},
    "turnwise.tokens.boundaries": {"Turn", "Untrained"},
    "turnwise.tokens.encoded": {"_make_encoded"},
    "turnwise.tokens.markers": {"Markers", "TokenizedMarker"},
    "turnwise.tokens.owners": {"Owner"},
    "turnwise.tokens.stop_ids": {"Stops"},
    "turnwise.tokens.token_offsets": {"TokenOffsets"},
    "turnwise.tokens.tokenizers.protocol": {"Added"},
    "turnwise.training": {"Examples"},
}


class Answer(NamedTuple):
    """What a worker sends back, as a plain tuple."""

    result: Any
    error: Exception | None
    warnings: tuple[str, ...]
    out_of_memory: bool = False
    retires: bool = False  # the worker ends after this answer


class AnswerReader(pickle.Unpickler):
    """Unpickles the results and errors of this package, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function of the white list.

        Raises:
            UnpicklingError: it is not on the list.
        """
        if name not in KNOWN_NAMES.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of an answer")
        return super().find_class(module, name)


def read_answer(data: bytes) -> Any:
    """Return the answer that a worker has sent.

    Raises:
        TurnwiseError: it is not one.
    """
    try:
        return AnswerReader(io.BytesIO(data)).load()
    except Exception as error:  # damaged data may raise anything
        raise TurnwiseError(
            f"a worker gave an answer that cannot be read: {error!r:.200}"
        ) from error


def write_answer(answer: Any) -> bytes:
    """Return an answer as bytes."""
    return pickle.dumps(answer, PROTOCOL)
