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

Cost: each step renders the whole conversation, which is fast, and tokenizes the new text only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from turnwise.engine.provenance.piece_table import PieceTable
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import (
    MessageError,
    TokenizerError,
    TurnwiseError,
    Unstable,
    did_you_mean,
    short_repr,
)
from turnwise.messages import InputReader
from turnwise.token_ids import to_token_ids
from turnwise.tokens.attribution import ASSISTANT_ROLES, Trust, find_template_tokens, parse_trust
from turnwise.tokens.boundaries import (
    TextSpan,
    find_content_end,
    find_last_message_end,
    find_message_spans,
    find_turn_end,
)
from turnwise.tokens.encode import (
    EncodeRequest,
    encode_once,
    find_specials,
    find_turn_delimiters,
    find_turns,
)
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.token_matcher import TokenMatch
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added

HISTORY = {
    "same": "the earlier text must not change, or Unstable is raised",
    "keep": "the earlier ids stay as they are, even if the template renders them differently now",
    "rewrite": "the whole conversation is re-encoded, sampled replies included",
}
MAX_SHOWN_LENGTH = 60  # characters of a text in an error

Chat = list[Mapping[str, Any]]


class ReplyReader(Protocol):
    """Parses the replies to one template."""

    def read(
        self, reply: str | Sequence[int], prompt: Any, tools: Any, tokenizer: Any
    ) -> Mapping[str, Any] | None:
        """Parse a reply to a message in the form that the template takes; None if it cannot parse replies."""
        ...

    def to_input(self, messages: Any) -> Any:
        """Return the messages with those that were parsed from replies in the form that the template takes."""
        ...


@dataclass(frozen=True, slots=True)
class Extension:
    """What the template writes after a reply."""

    chat: Chat
    prompt: str  # the whole rendered prompt
    text: str  # the part of it after the reply
    ids: list[int]
    diverges: bool  # the earlier text is rendered differently now


class Session:
    """A conversation as ids: `prompt`, then `add_reply` and `extend` in turn. It can be pickled.

    Example:
        >>> session = turnwise.load("chatml").session("turnwise")
        >>> ids = session.prompt([{"role": "user", "content": "Say yes."}])
        >>> session.add_reply("Yes.<|im_end|>")  # or the ids that were sampled
        >>> longer = session.extend([{"role": "user", "content": "Again."}])
        >>> longer[: len(ids)] == ids
        True

    Attributes:
        ids: everything so far.
        messages: the conversation, with replies as messages.
        stops: the texts that end a reply.
        diverged: True once `history="keep"` left text that is rendered differently now.
        read: a function from the text of a reply to a message, to be used instead of the grammar.
    """

    def __init__(self, request: EncodeRequest, stops: Sequence[str], reader: ReplyReader) -> None:
        self.request = request
        self.tokenizer = request.tokenizer
        self.stops = tuple(sorted({stop for stop in stops if stop}, key=len, reverse=True))
        self.read: Callable[[str], Any] | None = None
        self.messages: Chat = []
        self.ids: list[int] = []
        self.diverged = False
        self._reader = reader
        self._text = ""  # of the ids, a pending reply excluded
        self._prompt_text: str | None = None  # of the last prompt as the template writes it
        self._reply_index = 0  # of the reply in `messages`: it follows those of the last prompt
        self._reply_text: str | None = None  # of a reply that nothing follows yet
        self._plain_reply: Mapping[str, Any] | None = (
            None  # that reply as content only, if it differs
        )
        self._valid_ids: set[int] = set()
        self._added_ids = frozenset(token.id for token in self.tokenizer.added.values())
        self._decoded_lengths: dict[int, int] = {}  # of ids that were last before a reply

    # ---- public ----

    def prompt(self, messages: Any) -> list[int]:
        """Start a conversation; an earlier one is dropped.

        Args:
            messages: the messages before the first reply.

        Returns:
            The ids to send to the model.
        """
        return self._start(to_plain_messages(self._reader.to_input(messages)))

    def add_reply(self, reply: str | Sequence[int], message: Any = None) -> None:
        """Add what the model sampled.

        Args:
            reply: ids, which are kept as they are, or text.
            message: the reply as a message, if the caller knows it; else it is parsed.

        Raises:
            MessageError: there is no prompt, or a reply already.
            TokenizerError: the tokenizer does not have these ids.
        """
        if self._prompt_text is None:
            raise MessageError("there is no prompt to reply to", hint="call prompt first")
        if self._reply_text is not None:
            raise MessageError(
                "there is a reply already, and nothing follows it yet", hint="call extend first"
            )
        if message is not None:
            (message,) = self._reader.to_input([message])
            message = _to_plain_message(message, "message")
        if isinstance(reply, str):
            text, ids = reply, self._encode_reply(reply)
        else:
            ids = self.validate_ids(reply)
            text = self._decode_reply(ids)
        plain_reply = None
        if message is None:
            exact = reply if isinstance(reply, str) else self._as_text_or_ids(text, ids)
            message, plain_reply = self._read_reply(text, exact)
        self.messages.append(message)
        self.ids += ids
        self._reply_text, self._plain_reply = text, plain_reply

    def extend(self, messages: Any, history: str = "same") -> list[int]:
        """Add messages after a reply.

        Args:
            messages: tool results, the next question, or both.
            history: what to do where earlier text is rendered differently now. "same" raises Unstable and changes
                nothing, so `extend` can be called again with "keep" (the ids stay as they are) or "rewrite"
                (everything is re-encoded).

        Returns:
            The ids to send to the model: everything so far, the messages, and the generation prompt.

        Raises:
            Unstable: earlier text is rendered differently now.
            MessageError: there is no reply yet, or the messages are malformed.
        """
        if not isinstance(history, str) or history not in HISTORY:
            hint = did_you_mean(str(history), HISTORY, "One of")
            raise MessageError(f"unknown history {history!r}", path="history", hint=hint)
        if self._reply_text is None:
            raise MessageError(
                "messages follow a reply, and there is none yet", hint="call add_reply first"
            )
        following = to_plain_messages(self._reader.to_input(messages))
        if history == "rewrite":
            return self._rewrite(following)
        extension = self._extend_by_best_reading(following, history)
        if self.diverged or extension.diverges:
            # The earlier ids do not encode the new prompt, so the text of the session is continued instead.
            self.diverged = True
            self._text = self.text + extension.text
        else:
            self._text = extension.prompt
        self.ids += extension.ids
        self._set_prompt(extension.chat, extension.prompt)
        return list(self.ids)

    @property
    def stop_token_ids(self) -> list[int]:
        """The ids that end a reply."""
        added = self.tokenizer.added
        return [added[text].id for text in self.stops if text in added]

    @property
    def text(self) -> str:
        """The text of the ids."""
        return self._text + (self._reply_text or "")

    def fork(self) -> Session:
        """Return a second session that goes on from here; neither changes the other."""
        other = Session.__new__(Session)
        other.__dict__.update(self.__dict__)
        other.messages, other.ids = list(self.messages), list(self.ids)
        return other

    def validate_ids(self, ids: Any) -> list[int]:
        """Return the ids as a list, if all are ids of this tokenizer.

        Raises:
            TokenizerError: they are not ids, or the tokenizer does not have one of them.
        """
        numbers = to_token_ids(ids, "a reply is text or a list of ids")
        new = set(numbers) - self._valid_ids
        for number in new:
            if self.tokenizer.token(number) is None:
                raise TokenizerError(
                    f"ids[{numbers.index(number)}] is {number}, which {self.tokenizer.name} does not have",
                    hint="were they sampled with another tokenizer?",
                )
        self._valid_ids |= new
        return numbers

    def __repr__(self) -> str:
        return f"<Session: {len(self.messages)} messages, {len(self.ids)} ids>"

    # ---- prompts ----

    def _start(self, chat: Chat) -> list[int]:
        """Encode a whole conversation as the next prompt."""
        request = self.request
        encoded = encode_once(replace(request, messages=chat, arguments=request.prompt_arguments))
        self.diverged = False
        self.ids = list(encoded.input_ids)
        self._text = encoded.text
        self._set_prompt(chat, encoded.text)
        return list(self.ids)

    def _set_prompt(self, chat: Chat, text: str) -> None:
        """Remember the last prompt; it has no reply yet."""
        self.messages = chat
        self._prompt_text, self._reply_index = text, len(chat)
        self._reply_text = self._plain_reply = None

    def _rewrite(self, following: Chat) -> list[int]:
        """Re-encode everything; with the reply as plain content, if the template refuses what was parsed."""
        parsed, *others = self._find_readings(following)
        try:
            return self._start(parsed)
        except TurnwiseError:
            if not others:
                raise
        return self._start(others[0])

    def _find_readings(self, following: Chat) -> list[Chat]:
        """Return the conversation with the reply as it was parsed, then with it as plain content, if that differs."""
        readings = [[*self.messages, *following]]
        if self._plain_reply is not None:
            readings.append([*self.messages[:-1], self._plain_reply, *following])
        return readings

    def _extend_by_best_reading(self, following: Chat, history: str) -> Extension:
        """Return the extension with the first reading of the reply that leaves the earlier text unchanged.

        If none does and `history` is "keep", it is the first one in which the end of the reply is found.

        Raises:
            TurnwiseError: there is none; the error is that of the reply as it was parsed.
        """
        readings = self._find_readings(following)
        for may_diverge in (False, True) if history == "keep" else (False,):
            errors: list[TurnwiseError] = []
            for chat in readings:
                try:
                    return self._render_extension(chat, may_diverge)
                except TurnwiseError as error:
                    errors.append(error)
        raise errors[0]

    def _render_extension(self, chat: Chat, may_diverge: bool) -> Extension:
        """Render the conversation and encode what follows the reply.

        Raises:
            Unstable: the earlier text is rendered differently now, and it may not.
        """
        before = f"{self._prompt_text}{self._reply_text}"
        rendering = self.request.render_prompt(chat)
        diverges = not rendering.text.startswith(before)
        reply_end = len(before)
        if diverges and not may_diverge:
            prompt = self.request.render_prompt(self.messages[: self._reply_index])
            raise _unstable(prompt, rendering, before, self._reply_index)
        if diverges:
            reply_end = self._find_reply_end(rendering, chat)
        ids = self._encode_after(reply_end, rendering, chat)
        return Extension(chat, rendering.text, rendering.text[reply_end:], ids, diverges)

    def _find_reply_end(self, rendering: Rendering, chat: Chat) -> int:
        """Return where the reply ends in a text that diverges: after its stop, if the model wrote one."""
        reply, table = str(self._reply_text), rendering.piece_table
        span = find_message_spans(table).get(self._reply_index)
        if span is None:
            raise Unstable(
                "the template leaves the reply out, so nothing can be added after it",
                before=reply[-MAX_SHOWN_LENGTH:],
                now=rendering.text[-MAX_SHOWN_LENGTH:],
                message_index=self._reply_index,
                hint='history="rewrite" re-encodes the conversation',
            )
        own = find_specials(self.request, rendering, chat).by_template
        stops = self.request.stops.union(self.stops)
        stop = find_turn_end(table, rendering.text, span, own, stops)
        return stop.end if reply.endswith(self.stops) else stop.start

    def _encode_after(self, place: int, rendering: Rendering, chat: Chat) -> list[int]:
        """Return the ids of the text after `place`, where the ids of the session end."""
        encoder = encoder_for(self.tokenizer)
        text = rendering.text
        # Fast path: only the new text is looked at, and no trail is followed.
        starts, trails = rendering.texts_after(place)
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
        shifted = [
            TokenMatch(max(start, begin) - begin, end - begin, token, text_start - begin)
            for start, end, token, text_start in following
        ]
        seams = [start - begin for start in self._find_seams(rendering, chat) if start > begin]
        position = WITHIN
        if last_id is None:
            position = START
        elif last_id in self._added_ids:
            position = AFTER
        return encoder.encode_spans(text[begin:], shifted, seams, position=position)[0]

    def _find_seams(self, rendering: Rendering, chat: Chat) -> list[int]:
        """Return where assistant turns begin, if some of the new messages are an assistant's."""
        new_roles = [message.get("role") for message in chat[self._reply_index + 1 :]]
        if not any(role in ASSISTANT_ROLES for role in new_roles):
            return []
        specials = find_specials(self.request, rendering, chat)
        turns, _ = find_turns(self.request, rendering, chat, specials)
        return [turn.start for turn in turns]

    # ---- replies ----

    def _decode_reply(self, ids: list[int]) -> str:
        """Return the text of ids after the present ones: some decoders drop a space at the start of a text."""
        if not self.ids:
            return self.tokenizer.decode(ids)
        last = self.ids[-1]
        length = self._decoded_lengths.get(last)
        if length is None:
            length = self._decoded_lengths[last] = len(self.tokenizer.decode([last]))
        return self.tokenizer.decode([last, *ids])[length:]

    def _encode_reply(self, text: str) -> list[int]:
        """Return the ids of a reply given as text, with the special tokens that an assistant may write."""
        encoder = encoder_for(self.tokenizer)
        level = parse_trust(self.request.trust).get(("role", "assistant"), Trust.NONE)
        specials = encoder.matcher.find(text, partial(self._may_write, text, level))
        return encoder.encode_spans(text, specials, position=WITHIN)[0]

    def _may_write(self, text: str, level: Trust, token: Added, start: int, end: int) -> bool:
        """Return whether an assistant may write this token: a stop at the end, or what its trust level allows."""
        if level == Trust.ALL or not token.control or text[start:] in self.stops:
            return True
        if level == Trust.NONE or token.special:
            return False
        return token.text not in find_turn_delimiters(self.request)

    def _as_text_or_ids(self, text: str, ids: list[int]) -> str | list[int]:
        """Return the text if all special tokens that it spells are real: it is parsed alike, and faster than ids."""
        spelled = [match.token.id for match in encoder_for(self.tokenizer).matcher.find(text)]
        real = [id for id in ids if id in self._added_ids]
        return text if spelled == real else ids

    def _read_reply(
        self, text: str, reply: str | list[int]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
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
        tools = self.request.arguments.get("tools")
        parsed = self._reader.read(reply, self._prompt_text, tools, self.tokenizer)
        # A grammar that does not know the stop (the tokenizer's eos) takes it for content.
        if parsed is None or parsed in (plain, {**plain, "content": text}):
            return plain, None
        return parsed, plain


# ---- input ----


def to_plain_messages(messages: Any) -> Chat:
    """Return messages, or objects in their place, as plain data that the caller cannot change.

    Raises:
        MessageError: they are not messages.
    """
    reader = InputReader()
    chat = messages if isinstance(messages, (list, tuple)) else reader.read_messages(messages)
    return [reader.read_message(message, index) for index, message in enumerate(chat)]


def _to_plain_message(message: Any, name: str) -> Mapping[str, Any]:
    """Return one message as plain data; `name` is what errors call it."""
    plain = InputReader().to_plain(message, name)
    if not isinstance(plain, dict):
        raise MessageError(
            f"a message is a mapping, not {type(message).__name__}: {short_repr(message)}",
            path="message",
        )
    return plain


# ---- Unstable ----


def _unstable(prompt: Rendering, now: Rendering, before: str, reply: int) -> Unstable:
    """Return the error for a rendering that does not begin with the last prompt and the reply.

    Args:
        prompt: the last prompt, rendered again.
        now: the conversation as the template writes it now.
        before: the text of the last prompt and the reply.
        reply: the index of the reply's message.
    """
    place = _find_first_difference(before, now.text)
    changed = _find_changed_message(prompt, now, place, reply)
    subject = "text outside of the messages" if changed is None else f"messages[{changed}]"
    if changed == reply:
        subject = "the reply"
    end, piece = 0, None
    for piece in now.pieces:
        end += len(piece.text)
        if end > place:
            break
    old, new = before[place:], now.text[place:]
    return Unstable(
        f"{subject} is rendered differently now: "
        f"{short_repr(old[:MAX_SHOWN_LENGTH])} became {short_repr(new[:MAX_SHOWN_LENGTH])}",
        before=old,
        now=new,
        piece=piece,
        message_index=changed,
        hint='history="keep" goes on with the sampled ids as they are, "rewrite" re-encodes the conversation',
    )


def _find_changed_message(prompt: Rendering, now: Rendering, place: int, reply: int) -> int | None:
    """Return the message in which the earlier text changed; None where it belongs to no message."""
    table = prompt.piece_table
    if place >= find_last_message_end(table):
        return reply  # its opening, or its own text
    changed = _message_at(table, place)
    if changed == reply - 1 and _message_at(now.piece_table, place) == reply:
        content_end = find_content_end(table, TextSpan(0, len(prompt.text)))
        if place >= content_end:
            return reply  # the template writes its opening with the message before
    return changed


def _message_at(table: PieceTable, character: int) -> int | None:
    if character >= table.starts[-1]:
        return None
    return table.message_of(table.index_at(character))


def _find_first_difference(first: str, second: str) -> int:
    """Return the first character at which two texts differ, by bisection."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
