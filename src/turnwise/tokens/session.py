"""Session: the ids of a conversation that grows, for serving and reinforcement learning.

The ids that a model sampled are kept as they are, never decoded and encoded again. `extend` adds what the template
writes around them: it renders the conversation with the new messages, checks that the text begins with the last prompt
and the reply, and encodes only what follows. If the text begins otherwise, the model would now read something else than
it read and wrote. That raises `Unstable`, with the first difference, unless the caller chooses another `history`:

    prompt [Q1]             <|user|>Q1<|assistant|>
    add_reply A1            <|user|>Q1<|assistant|>A1<|end|>
    extend [Q2]             <|user|>Q1<|assistant|>A1<|end|>  <|user|>Q2<|assistant|>
                            checked, ids kept                 encoded

A reply is parsed to a message where the grammar of the template is known, so that reasoning and tool calls are in the
history as such. A model need not write them as the template does. Then the whole reply is taken for content, if that
is rendered as the model wrote it; only if neither is, the reply is `Unstable`.

What was sampled is recorded in a trajectory (`trajectory.py`); where history is re-encoded, the next one begins.

Cost: each step reads, writes and tokenizes what is new, and compares the whole text with that before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, Literal, Protocol, get_args

from turnwise.engine.provenance.piece_table import read_texts_after
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import MessageError, TurnwiseError, short_repr
from turnwise.messages import Change, InputReader, JsonMapping, Messages
from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.schema import check_name
from turnwise.tokens.attribution import find_template_tokens
from turnwise.tokens.boundaries import find_message_spans, find_seams
from turnwise.tokens.encode import EncodeRequest, encode_once, find_specials, find_turns
from turnwise.tokens.owners import Owner
from turnwise.tokens.read_chat import ReadChat, read_more
from turnwise.tokens.reply_tokens import ReplyTokens
from turnwise.tokens.text_encoder import SpanRow, encoder_for
from turnwise.tokens.token_matcher import TokenMatch
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN
from turnwise.tokens.trajectory import (
    Chat,
    ReplySplitter,
    SampledSpan,
    Stretch,
    Trajectory,
    read_logprobs,
)
from turnwise.tokens.turn_ends import find_turn_end
from turnwise.tokens.unstable import make_omitted, make_unstable

History = Literal["same", "keep", "rewrite"]
HISTORY = get_args(History)


class ReplyReader(ReplySplitter, Protocol):
    """Parses the replies to one template."""

    def read(
        self,
        reply: str | Sequence[int],
        prompt: Any,
        tools: Any,
        tokenizer: Any,
        messages: Iterable[Any] = (),
    ) -> JsonMapping | None:
        """Parse a reply to a message in the form that the template takes; None if it cannot parse replies.

        Its calls get ids that are not those of calls in `messages`, the conversation so far.
        """

    def to_input(
        self, messages: Any, tools: Any, first: int, reply: Any = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return messages in the form that the template takes, and what was changed.

        `first` is how many messages are before them, `reply` the last of those.
        """

    def check_losses(
        self, rendering: Rendering, messages: Sequence[Any], tools: Any, first: int
    ) -> None:
        """Warn of text of the messages from `first` on that is not in a rendering."""


class Session:
    """A conversation as ids: `prompt`, then `add_reply` and `extend` in turn. It can be pickled and copied.

    Example:
        >>> session = turnwise.load("chatml").session("turnwise")
        >>> ids = session.prompt([{"role": "user", "content": "Say yes."}])
        >>> session.add_reply("Yes.<|im_end|>")  # or the ids that were sampled
        >>> longer = session.extend([{"role": "user", "content": "Again."}])
        >>> longer[: len(ids)] == ids
        True
        >>> span = session.sampled[0]
        >>> session.labels[span.start : span.end] == longer[span.start : span.end]
        True

    Attributes:
        stops: the texts that end a reply.
        stop_token_ids: the ids that end a reply, in the order of `Template.stops`.
        changes: what was changed in messages before they were rendered, by their indices in `messages`.
        diverged: True once `history="keep"` left text that is rendered differently now.
        read: a function from the text of a reply to a message, to be used instead of the grammar.
    """

    def __init__(self, request: EncodeRequest, stops: Sequence[str], reader: ReplyReader) -> None:
        # The request of the present call, whose renderings share an allowance; what is rendered later, for owners,
        # has its own budgets.
        self.request = request
        self._every_call = request
        self.tokenizer = request.tokenizer
        in_order = [stop for stop in dict.fromkeys(stops) if stop]
        self.stops = tuple(sorted(in_order, key=len, reverse=True))
        self.read: Callable[[str], Any] | None = None
        self.diverged = False
        self.changes: tuple[Change, ...] = ()
        self._reader = reader
        self._tools = request.arguments.get("tools")
        self._reply_tokens = ReplyTokens(request, in_order)
        self.stop_token_ids = self._reply_tokens.stop_ids
        self._text = ""  # of the ids, a pending reply excluded
        self._read = ReadChat()
        self._is_shared = False  # the caller may change messages
        self._has_prompt = False
        self._finished: list[Trajectory] = []  # before the last rewriting
        self._trajectory = Trajectory(request, reader, Stretch([], "", 0))

    # ---- public ----

    @property
    def ids(self) -> list[int]:
        """Everything so far: what the model reads next, or has just sampled."""
        return self._trajectory.ids

    @property
    def messages(self) -> Chat:
        """The conversation, with replies as messages."""
        self._is_shared = True
        return self._trajectory.messages

    @property
    def sampled(self) -> list[SampledSpan]:
        """The spans of `ids` that the model sampled, one for each reply."""
        return self._trajectory.sampled

    @property
    def labels(self) -> list[int]:
        """The ids that were sampled, and -100 for all others."""
        return self._trajectory.labels

    @property
    def mask(self) -> list[int]:
        """1 for the ids that were sampled, 0 for all others."""
        return self._trajectory.mask

    @property
    def logprobs(self) -> list[float | None]:
        """The log-probability of each id, as `add_reply` was given it; None where there is none."""
        return self._trajectory.logprobs

    @property
    def owners(self) -> list[Owner]:
        """The piece, message and field in which each token begins; sampled tokens belong to their reply."""
        return self._trajectory.owners

    @property
    def segments(self) -> list[Trajectory]:
        """One trajectory for each time that history was rewritten, and the present one: the samples of a trainer.

        Each has `ids`, `labels`, `mask`, `logprobs`, `sampled` and `owners`. A prompt that was re-encoded has no
        sampled ids: those are in the segment before.
        """
        self._is_shared = True
        return [*self._finished, self._trajectory]

    def prompt(self, messages: Messages) -> list[int]:
        """Start a conversation; an earlier one is dropped, with its segments.

        Args:
            messages: the messages before the first reply.

        Returns:
            The ids to send to the model.
        """
        converted, changes = self._reader.to_input(messages, self._tools, 0)
        chat = to_plain_messages(converted)
        self.request = self._every_call.for_one_call(len(chat))
        self._start(chat)
        self._finished = []
        self.changes = changes
        return list(self.ids)

    def add_reply(
        self, reply: str | Sequence[int], message: Any = None, logprobs: Any = None
    ) -> None:
        """Add what the model sampled.

        Args:
            reply: ids, which are kept as they are, or text.
            message: the reply as a message, if the caller knows it; else it is parsed.
            logprobs: the log-probabilities of the ids: one number, or None, for each.

        Raises:
            MessageError: there is no prompt, or a reply already; or the log-probabilities do not fit the ids.
            TokenizerError: the tokenizer does not have these ids.
        """
        stretch = self._trajectory.stretch
        if not self._has_prompt:
            raise MessageError("there is no prompt to reply to", hint="call prompt first")
        if stretch.reply is not None:
            raise MessageError(
                "there is a reply already, and nothing follows it yet", hint="call extend first"
            )
        if message is not None:
            (message,), changes = self._reader.to_input(
                [message], self._tools, len(stretch.messages)
            )
            message = _to_plain_message(message, "message")
            self.changes += changes
        exact: str | list[int] = ""
        if isinstance(reply, str):
            if logprobs is not None:
                raise MessageError(
                    "a reply given as text has no ids that were sampled, so no log-probabilities",
                    path="logprobs",
                    hint="give the sampled ids",
                )
            text, ids, exact = reply, self._reply_tokens.encode(reply), reply
        else:
            ids = self._reply_tokens.validate(reply)
            text = self._reply_tokens.decode(ids, self.ids)
        numbers = read_logprobs(logprobs, len(ids))
        plain_reply = None
        if message is None:
            exact = exact or self._reply_tokens.as_text_or_ids(text, ids)
            message, plain_reply = self._read_reply(text, exact)
        self._trajectory.add_sampled(ids, text, self._reply_tokens.is_finished(text, ids), numbers)
        stretch.messages.append(message)
        stretch.reply, stretch.plain_reply = text, plain_reply

    def extend(self, messages: Messages, history: History = "same") -> list[int]:
        """Add messages after a reply.

        Args:
            messages: tool results, the next question, or both.
            history: what to do where earlier text is rendered differently now. "same" raises Unstable and changes
                nothing, so `extend` can be called again with "keep" (the ids stay as they are) or "rewrite"
                (everything is re-encoded, and what was sampled stays in the `segments` before).

        Returns:
            The ids to send to the model: everything so far, the messages, and the generation prompt.

        Raises:
            Unstable: earlier text is rendered differently now.
            MessageError: there is no reply yet, or the messages are malformed.
        """
        check_name(history, HISTORY, "unknown history", "One of", path="history")
        stretch = self._trajectory.stretch
        if stretch.reply is None:
            raise MessageError(
                "messages follow a reply, and there is none yet", hint="call add_reply first"
            )
        before = stretch.messages
        converted, changes = self._reader.to_input(messages, self._tools, len(before), before[-1])
        following = to_plain_messages(converted)
        self.request = self._every_call.for_one_call(len(before) + len(following))
        if history == "rewrite":
            self._rewrite(following)
        else:
            self._add_by_best_reading(following, history)
        self.changes += changes
        return list(self.ids)

    @property
    def text(self) -> str:
        """The text of the ids."""
        return self._text + (self._trajectory.stretch.reply or "")

    def fork(self) -> Session:
        """Return a second session that goes on from here; neither changes the other."""
        self._is_shared = True  # by both
        other = Session.__new__(Session)
        other.__dict__.update(self.__dict__)
        other._trajectory = self._trajectory.copy()
        other._finished = list(self._finished)
        return other

    def replace_ids(self, ids: Sequence[int]) -> None:
        """Take other ids for the prompt, as the caller sent them; their owners are not known.

        Raises:
            TokenizerError: the tokenizer does not have these ids.
        """
        self._trajectory.replace_ids(self._reply_tokens.validate(ids))

    __copy__ = fork

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        other = self.fork()
        # The template and the tokenizer never change; the messages may be changed by the caller.
        other._trajectory.stretch.messages[:] = deepcopy(self.messages, memo)
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": ReadChat()}

    def __repr__(self) -> str:
        return f"<Session: {len(self.messages)} messages, {len(self.ids)} ids>"

    # ---- prompts ----

    def _start(self, chat: Chat) -> None:
        """Encode a whole conversation as the next prompt, in a trajectory of its own."""
        request = self.request
        encoded = encode_once(request._replace(messages=chat, arguments=request.prompt_arguments))
        self._reader.check_losses(encoded.rendering, chat, self._tools, 0)
        self.diverged = False
        self._has_prompt = True
        self._read = ReadChat()
        self._text = encoded.text
        stretch = Stretch(chat, encoded.text, len(chat))
        self._trajectory = Trajectory(self._every_call, self._reader, stretch)
        self._trajectory.add_ids(encoded.input_ids, 0, encoded.text, encoded.token_offsets.spans)

    def _rewrite(self, following: Chat) -> None:
        """Re-encode everything; with the reply as plain content, if the template refuses what was parsed."""
        finished = self._trajectory
        parsed, *others = finished.stretch.find_readings(following)
        try:
            self._start(parsed)
        except TurnwiseError as error:
            raise_if_call_ended(error)
            if not others:
                raise
            self._start(others[0])
        self._finished.append(finished)

    def _add_by_best_reading(self, following: Chat, history: str) -> None:
        """Add messages, with the first reading of the reply that leaves the earlier text unchanged.

        If none does and `history` is "keep", it is the first one in which the end of the reply is found.

        Raises:
            TurnwiseError: there is none; the error is that of the reply as it was parsed.
        """
        readings = self._trajectory.stretch.find_readings(following)
        for may_diverge in (False, True) if history == "keep" else (False,):
            errors: list[TurnwiseError] = []
            for chat in readings:
                try:
                    return self._add_following(chat, may_diverge)
                except TurnwiseError as error:
                    raise_if_call_ended(error)
                    errors.append(error)
        raise errors[0]

    def _add_following(self, chat: Chat, may_diverge: bool) -> None:
        """Render the conversation, encode what follows the reply, and go on from there.

        Raises:
            Unstable: the earlier text is rendered differently now, and it may not; nothing has changed then.
        """
        stretch = self._trajectory.stretch
        before = f"{stretch.prompt}{stretch.reply}"
        # Messages that no caller has seen are as they were.
        known = self._read.recognise(chat) if self._is_shared else self._read
        read = read_more(chat, known.read)
        rendering = self.request.render_prompt(read)
        diverges = not rendering.text.startswith(before)
        reply_end = len(before)
        if diverges and not may_diverge:
            earlier = self.request.render_prompt(stretch.messages[: stretch.prompt_length])
            raise make_unstable(earlier, rendering, before, stretch.prompt_length)
        if diverges:
            stops = self.request.stops.union(self.stops)
            reply_end = find_reply_end(self.request, stretch, stops, rendering, chat)
        start, ids, spans = self._encode_after(reply_end, rendering, chat)
        self._reader.check_losses(rendering, chat, self._tools, stretch.prompt_length + 1)
        prompt = rendering.text
        # Once earlier ids do not encode the new prompt, the text of the session is continued instead.
        self.diverged = self.diverged or diverges
        self._text = self.text + prompt[reply_end:] if self.diverged else prompt
        self._read = ReadChat(known.given, read)
        self._trajectory.set_prompt(chat, prompt, is_rewritten=diverges)
        self._trajectory.add_ids(ids, start, prompt[start:], spans)

    def _encode_after(
        self, place: int, rendering: Rendering, chat: Chat
    ) -> tuple[int, list[int], list[SpanRow]]:
        """Return the ids of the text after `place`, where the ids of the session end, and where their text begins."""
        encoder = encoder_for(self.tokenizer)
        text = rendering.text
        # Fast path: only the new text is looked at, and no trail is followed.
        starts, trails = read_texts_after(rendering.output, text, place)
        specials = find_template_tokens(encoder.matcher, text, starts, trails, place)
        if specials is None:
            specials = find_specials(self.request, rendering, chat).matches
        last_id = self.ids[-1] if self.ids else None
        begin = place
        following: list[TokenMatch] = []
        for match in specials:
            if match.text_start >= place:
                following.append(match)
            elif match.end > place and match.token.id == last_id:
                begin = match.end  # the last token strips the white space after it
        seams = [start for start in self._find_seams(rendering, chat) if start > begin]
        position = WITHIN
        if last_id is None:
            position = START
        elif last_id in self._reply_tokens.added_ids:
            position = AFTER
        ids, spans = encoder.encode_spans(text, following, seams, position, (begin, []))
        return begin, ids, spans

    def _find_seams(self, rendering: Rendering, chat: Chat) -> list[int]:
        """Return where assistant turns begin and end, if some of the new messages are an assistant's."""
        first_new = self._trajectory.stretch.prompt_length + 1
        if not any([message.get("role") in ASSISTANT_ROLES for message in chat[first_new:]]):
            return []
        specials = find_specials(self.request, rendering, chat)
        turns, _ = find_turns(self.request, rendering, chat, specials)
        return find_seams(turns, rendering.text)

    def _read_reply(
        self, text: str, reply: str | list[int]
    ) -> tuple[JsonMapping, JsonMapping | None]:
        """Return the reply as a message, and as plain content if that is another message."""
        if self.read is not None:
            try:
                message = self.read(text)
            except TurnwiseError:
                raise
            except Exception as error:  # the caller's code may raise anything
                raise MessageError(
                    f"the reply could not be read: {error!r:.200}", path="read"
                ) from error
            return _to_plain_message(message, "read"), None
        stop = next((stop for stop in self.stops if text.endswith(stop)), "")
        plain = {"role": "assistant", "content": text.removesuffix(stop)}
        asked = self._trajectory.stretch
        parsed = self._reader.read(reply, asked.prompt, self._tools, self.tokenizer, asked.messages)
        # A grammar that does not know the stop (the tokenizer's eos) takes it for content.
        if parsed is None or parsed in (plain, {**plain, "content": text}):
            return plain, None
        return parsed, plain


def find_reply_end(
    request: EncodeRequest,
    stretch: Stretch,
    stops: frozenset[str],
    rendering: Rendering,
    chat: Chat,
) -> int:
    """Return where a reply ends in a rendering that diverges from it: after its stop, if the model wrote one.

    Raises:
        Unstable: the template leaves the reply out.
    """
    reply, index, table = str(stretch.reply), stretch.prompt_length, rendering.piece_table
    span = find_message_spans(table).get(index)
    if span is None:
        raise make_omitted(reply, rendering.text, index)
    own = find_specials(request, rendering, chat).by_template
    stop = find_turn_end(table, rendering.text, span, own, stops)
    return stop.end if reply.endswith(tuple(stops)) else stop.start


# ---- input ----


def to_plain_messages(messages: Any) -> Chat:
    """Return messages, or objects in their place, as plain data that the caller cannot change.

    Raises:
        MessageError: they are not messages.
    """
    reader = InputReader()
    chat = messages if isinstance(messages, (list, tuple)) else reader.read_messages(messages)
    return list(map(reader.read_message, chat, count()))


def _to_plain_message(message: Any, name: str) -> JsonMapping:
    """Return one message as plain data; `name` is what errors call it."""
    plain = InputReader().to_plain(message, name)
    if not isinstance(plain, dict):
        raise MessageError(
            f"a message is a mapping, not {type(message).__name__}: {short_repr(message)}",
            path="message",
        )
    return plain
