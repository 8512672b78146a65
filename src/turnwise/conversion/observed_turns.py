"""Observe what a template writes around the messages of plain rounds.

    chatml:  ⟨<|im_start|>user\\n⟩Xfirst⟨<|im_end|>\\n<|im_start|>assistant\\n⟩Xone⟨<|im_end|>\\n⟩

Three conversations are rendered: two rounds with a system text, the same without, and one user
message with and without a generation prompt. Comparing the texts around the messages tells where a
turn ends and the next begins:

* the generation prompt is what `add_generation_prompt` adds to a user message;
* a user turn starts with what the first and the second user message have in common;
* what is before the first user message is a fixed prefix, or a system turn that the template fills
  by itself.

Special tokens are rendered as marks (`TOKEN_MARKS`), so their places are known; where a template
reads the clock, the date of the day is marked too. The `Prober` of `analysis/` is not used here: it
adapts its messages to what a template accepts, while a dialect is for exactly these rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os.path import commonprefix
from typing import NamedTuple

from turnwise.analysis.conversations import NOW, MessageDict, Probe, make_message
from turnwise.analysis.counterexample import try_render
from turnwise.dialects.turns import (
    MARKS,
    TOKEN_MARKS,
    Slot,
    Text,
    Turns,
    fill_slots,
    replace_texts,
)
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import SourceError, TurnwiseError, short_repr
from turnwise.messages import JsonMapping
from turnwise.normalisation.normaliser import Normaliser
from turnwise.normalisation.systems import PARAGRAPH

EOS = TOKEN_MARKS["eos_token"]
SYSTEM = make_message("system", "Xsystem")
ROUNDS = [
    make_message("user", "Xfirst"),
    make_message("assistant", "Xone"),
    make_message("user", "Xsecond"),
    make_message("assistant", "Xtwo"),
]
MESSAGE = Slot("text")
CLOCK = "strftime_now"
DATE_FORMAT = "%Y-%m-%d"


class SystemTurn(NamedTuple):
    """What a template writes before the first user turn."""

    prefix: str
    text: Text | None = None
    in_user: bool = False
    in_last_user: bool = False
    after_bos: bool = False  # in the first round, between its bos token and the user turn
    default: str | None = None


class PromptTexts(NamedTuple):
    """What a template writes after a user message."""

    user_suffix: str
    generation_prompt: str
    before_reply: str


def observe_turns(
    renderer: Renderer,
    tokens: Mapping[str, str],
    bos_token: str = "",
    normaliser: Normaliser | None = None,
) -> Turns:
    """Render known conversations and read the turns off them.

    Args:
        renderer: the template.
        tokens: the special tokens, or marks for them.
        bos_token: the text of the bos token, which a template may also write as text.
        normaliser: gives conversations the form that the template takes, if `render` does so.
    """
    rounds = _read_surroundings(renderer, ROUNDS, tokens)
    prompt = _read_surroundings(renderer, ROUNDS[:1], tokens, generation_prompt=True)
    if rounds is None or prompt is None:
        raise _explain_unreadable(renderer, tokens)
    # A template may leave out an unanswered message unless a reply is to follow.
    question = _read_surroundings(renderer, ROUNDS[:1], tokens) or prompt
    # Five texts around four messages: user, reply, user, reply.
    start, user_to_reply, reply_to_user, user_to_last_reply, end = rounds
    after_user = _split_prompt(prompt[1], question[1], user_to_reply)
    before_user = _find_numbered_start(start, reply_to_user)
    if before_user is None:
        before_user = (_find_start(start, reply_to_user, end),)
    first_user = fill_slots(before_user, 0)
    suffix, separator = _split_reply_end(
        reply_to_user.removesuffix(fill_slots(before_user, 1)), end
    )
    bos = tokens["bos_token"]
    if bos_token and start.startswith(bos_token):
        bos = bos_token
    with_system = _read_surroundings(renderer, [SYSTEM, *ROUNDS], tokens)
    if with_system is None:
        text = _find_system_in_last_user(renderer, tokens, start, reply_to_user)
        system = SystemTurn(start.removesuffix(first_user), text, in_last_user=text is not None)
        if text is None and normaliser is not None and _joins_system(normaliser):
            system = system._replace(text=(MESSAGE, PARAGRAPH), in_user=True)
    else:
        system = _find_system(start.removesuffix(first_user), with_system, first_user, bos)
    if system.after_bos:
        # Then the bos token of a later round is the end of what separates it from the one before.
        before_user = (str(before_user[0]).removeprefix(system.prefix), *before_user[1:])
        separator += system.prefix
    reply_prefix = None
    if after_user.before_reply != after_user.generation_prompt:
        reply_prefix = after_user.before_reply
    last_prefix = None
    if user_to_last_reply != user_to_reply:
        last_prefix = user_to_last_reply.removeprefix(after_user.user_suffix)
    reply_suffix = suffix.removesuffix(EOS)
    stop = reply_suffix.strip()
    turns = Turns(
        user=_make_text(*before_user, MESSAGE, after_user.user_suffix),
        prefix=system.prefix,
        generation_prompt=after_user.generation_prompt,
        reply_prefix=reply_prefix,
        reply_suffix=reply_suffix,
        eos=suffix.endswith(EOS),
        separator=separator,
        last_prefix=last_prefix,
        last_suffix=end.removeprefix(suffix),
        system=system.text,
        system_in_user=system.in_user,
        system_in_last_user=system.in_last_user,
        default_system=system.default,
        trimmed_roles=_find_trimmed_roles(renderer, tokens),
        stops=(stop,) if stop else (),
    )
    if CLOCK in renderer.text:
        return replace_texts(turns, NOW.strftime(DATE_FORMAT), MARKS["date"])
    return turns


def _read_surroundings(
    renderer: Renderer,
    chat: list[MessageDict],
    tokens: JsonMapping,
    generation_prompt: bool = False,
    order: Iterable[int] | None = None,
) -> list[str] | None:
    """Return the texts around the contents of these messages.

    None if the template refuses them, or does not write each content exactly once, in order. `order`
    gives the indexes of the messages as they are expected, if that is not their own order.
    """
    try:
        rendering = renderer.render(
            chat, add_generation_prompt=generation_prompt, now=NOW, **tokens
        )
    except TurnwiseError as error:
        raise_if_call_ended(error)
        return None
    texts, at = [], 0
    for index in range(len(chat)) if order is None else order:
        spans = rendering.spans(field=f"messages[{index}].content")
        if len(spans) != 1 or spans[0][0] < at:
            return None
        start, end = spans[0]
        texts.append(rendering.text[at:start])
        at = end
    return [*texts, rendering.text[at:]]


def _split_prompt(prompt: str, question: str, user_to_reply: str) -> PromptTexts:
    """Tell the end of a user turn from the generation prompt.

    Args:
        prompt: the text after a user message with a generation prompt.
        question: the same without.
        user_to_reply: the text between a user message and a reply.
    """
    generation_prompt = prompt.removeprefix(question)
    user_suffix = prompt.removesuffix(generation_prompt)
    # A template may end a user turn otherwise if a reply follows.
    if not user_to_reply.startswith(user_suffix):
        user_suffix = commonprefix([prompt, user_to_reply])
        generation_prompt = prompt.removeprefix(user_suffix)
    return PromptTexts(user_suffix, generation_prompt, user_to_reply.removeprefix(user_suffix))


def _find_start(before_first: str, before_second: str, end: str) -> str:
    """Return the start of a user turn, from the texts before the first and the second message.

    `end` is what follows a final reply: usually a reply ends the same way if a turn follows.
    """
    start = before_second.removeprefix(end)
    if before_second.startswith(end) and before_first.endswith(start):
        return start
    return _common_suffix(before_first, before_second)


def _find_numbered_start(before_first: str, before_second: str) -> Text | None:
    """Return the start of a user turn if it has the number of the round in it."""
    rest = _common_suffix(before_first, before_second)
    first, second = before_first.removesuffix(rest), before_second.removesuffix(rest)
    for slot, number, next_number in (("index", "0", "1"), ("round", "1", "2")):
        if first.endswith(number) and second.endswith(next_number):
            label = _common_suffix(first[:-1], second[:-1])
            return _make_text(label, Slot(slot), rest)
    return None


def _split_reply_end(reply_to_turn: str, end: str) -> tuple[str, str]:
    """Return what ends a reply, and what separates it from the next turn."""
    # The model writes what ends a reply, but not the white space before the next turn.
    suffix = end.rstrip()
    if not reply_to_turn.startswith(suffix):
        suffix = reply_to_turn.rstrip()
    return suffix, reply_to_turn.removeprefix(suffix)


def _find_system_in_last_user(
    renderer: Renderer, tokens: Mapping[str, str], start: str, reply_to_user: str
) -> Text | None:
    """Return the text around a system text that is written before the last user's, if it is.

    Args:
        renderer: the template.
        tokens: the special tokens.
        start: the text before the first user's, without a system text.
        reply_to_user: the text between a reply and the next user's.
    """
    around = _read_surroundings(
        renderer, [SYSTEM, *ROUNDS[:3]], tokens, generation_prompt=True, order=(1, 2, 0, 3)
    )
    if around is None or around[0] != start or not around[2].startswith(reply_to_user):
        return None
    return _make_text(around[2].removeprefix(reply_to_user), MESSAGE, around[3])


def _joins_system(normaliser: Normaliser) -> bool:
    """Return True if a system text is put before the first user's, since the template has no place for it."""
    first = normaliser.normalise([SYSTEM, *ROUNDS]).messages[0]
    return bool(first == {**ROUNDS[0], "content": f"Xsystem{PARAGRAPH}Xfirst"})


def _find_system(start: str, with_system: list[str], user_start: str, bos: str) -> SystemTurn:
    """Compare conversations with and without a system text.

    Args:
        start: the text before the first user turn, without a system text.
        with_system: the texts around the messages with one.
        user_start: the start of a user turn.
        bos: the mark of the bos token, if the dialect writes it.
    """
    head, tail = with_system[0], with_system[1]
    # A bos token that leads both belongs to the prefix, whatever else is different.
    lead = bos if start.startswith(bos) and head.startswith(bos) else ""
    start, head = start.removeprefix(lead), head.removeprefix(lead)
    bare_start = user_start.removeprefix(bos)
    has_bos_in_rounds = bare_start != user_start and head.startswith(bos) and not start
    if has_bos_in_rounds and tail.endswith(bare_start) and not tail.endswith(user_start):
        text = _make_text(head.removeprefix(bos), MESSAGE, tail.removesuffix(bare_start))
        return SystemTurn(bos, text, after_bos=True)
    if not tail.endswith(user_start):
        # No user turn starts after the system text, so it may be inside of one.
        if not head.startswith(start + user_start):
            return SystemTurn(lead + start)
        text = _make_text(head.removeprefix(start + user_start), MESSAGE, tail)
        return SystemTurn(lead + start, text, in_user=True)
    tail = tail.removesuffix(user_start)
    if head.startswith(start):
        return SystemTurn(lead + start, _make_text(head.removeprefix(start), MESSAGE, tail))
    text = _make_text(head, MESSAGE, tail)
    if start.startswith(head) and start.endswith(tail) and len(start) >= len(head) + len(tail):
        # Without a system text there is the same turn, with a text of the template's own.
        default = start.removeprefix(head).removesuffix(tail)
        return SystemTurn(lead, text, default=default)
    return SystemTurn(lead + start, text)


def _find_trimmed_roles(renderer: Renderer, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """Return the roles whose texts lose the white space around them."""
    chat = [message | {"content": f" {message['content']} "} for message in (SYSTEM, *ROUNDS)]
    options = dict(tokens)
    outcome = try_render(renderer, Probe("white space", chat, options=options))
    if isinstance(outcome, TurnwiseError):
        del chat[0]
        outcome = try_render(renderer, Probe("white space", chat, options=options))
    if isinstance(outcome, TurnwiseError):
        return ()
    touched = [message["role"] for message in chat if message["content"] not in outcome.text]
    return tuple(dict.fromkeys(touched))


def _make_text(*parts: str | Slot) -> Text:
    return tuple(part for part in parts if part)


def _common_suffix(a: str, b: str) -> str:
    return commonprefix([a[::-1], b[::-1]])[::-1]


def _explain_unreadable(renderer: Renderer, tokens: Mapping[str, str]) -> SourceError:
    """Return the error for a template that refuses rounds, or does not write each message once."""
    for length in range(1, len(ROUNDS) + 1):
        chat, is_prompt = ROUNDS[:length], length == 1
        if _read_surroundings(renderer, chat, tokens, is_prompt) is None:
            break
    probe = Probe("rounds", chat, add_generation_prompt=is_prompt, options=dict(tokens))
    outcome = try_render(renderer, probe)
    if isinstance(outcome, TurnwiseError):
        what, result = "it refuses alternating user and assistant messages", outcome.message
        result = f"its error: {result}"
    else:
        what = "it does not write the text of every message once, in order"
        result = f"it writes: {short_repr(outcome.text, 200)}"
    lines = ["the conversation:", *(f"  {message!r}" for message in chat), result]
    return SourceError(f"this template cannot be expressed as turns: {what}", hint="\n".join(lines))
