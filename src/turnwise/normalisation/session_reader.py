"""The messages of a session, in the form that the template takes.

A prompt is normalised like any conversation. What follows a reply is normalised too, with one difference: the model has
read the messages before it, so nothing is moved to them, whatever `late_system` says.

A session numbers messages as in `Session.messages`, where moved texts are where they were put.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.analysis.losses import Loss
from turnwise.engine.provenance.rendering import Rendering
from turnwise.messages import Change
from turnwise.normalisation.normalised import LateSystem, check_late_system
from turnwise.normalisation.preprocessor import Preprocessor
from turnwise.replies.codec import ReplyCodec


class SessionReader:
    """Reads the messages and the replies of sessions of one template.

    Args:
        codec: parses replies.
        inputs: prepares messages.
        normalise: give messages the forms that the template takes; else only those that were parsed from replies.
        strict: raise an error, not a warning, if text is lost or a role is misspelt.
        late_system: where system texts after other messages are put.
    """

    def __init__(
        self,
        codec: ReplyCodec,
        inputs: Preprocessor,
        normalise: bool,
        strict: bool,
        late_system: LateSystem | None,
    ) -> None:
        self.read, self.split = codec.read, codec.split
        self._codec = codec
        self._inputs = inputs
        self._normalise = normalise
        self._strict = strict
        self._late_system = check_late_system(late_system)

    def to_input(
        self, messages: Any, tools: Any, first: int, reply: Any = None
    ) -> tuple[Any, tuple[Change, ...]]:
        """Return messages in the form that the template takes, and what was changed.

        Args:
            messages: the messages of a prompt, or those that follow a reply.
            tools: the tools of the session.
            first: how many messages are before them.
            reply: the last of those.
        """
        if not self._normalise:
            return self._codec.to_input(messages), ()
        given = self._inputs.normalise(
            messages, tools, self._strict, first, reply, self._late_system
        )
        self._inputs.report_to(self._strict).report_losses(list(map(Loss, given.lost)))
        return given.messages, given.changes

    def check_losses(
        self, rendering: Rendering, messages: Sequence[Any], tools: Any, first: int
    ) -> None:
        """Warn of text of the messages from `first` on that is not in a rendering."""
        if self._normalise:
            self._inputs.check_losses(rendering, messages, tools, first, self._strict)
