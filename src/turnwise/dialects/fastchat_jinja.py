"""Write the Jinja of a FastChat Conversation.

FastChat has a loop of its own for each separator style; here one loop serves all, filled from the
row of the style (`fastchat_styles.py`). A row is asked for its texts at every position that a
message may have. If the answers are equal, the text goes into the template; if not, a choice does:

    {{- 'USER: ' + text(message.content) + (' ' if even else '</s>') -}}

What `exact` changes is described in `fastchat.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.dialects.fastchat_styles import (
    FastChatSpec,
    SystemRule,
    TurnPosition,
    TurnText,
    fill_text,
)
from turnwise.dialects.turns import Text, literal, parse_format_string

IMAGE_PLACEHOLDER = "$$<image>$$"
REFUSAL = "a FastChat template has no place for this message: "
TURNS = "messages | rejectattr('role', 'equalto', 'system') | list"
SYSTEM = (
    "messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | list | last"
)


class JinjaExpression(str):
    """A Jinja expression among literal texts."""


Term = str | JinjaExpression


def translate_spec(
    spec: FastChatSpec, exact: bool, other_roles: Mapping[str, str] | None = None
) -> str:
    """Return the Jinja of a Conversation.

    Args:
        spec: its fields.
        exact: reproduce FastChat to the byte.
        other_roles: further roles of messages, with the texts that are written for them.
    """
    return "\n".join(FastChatJinjaWriter(spec, exact, other_roles or {}).write_lines()) + "\n"


def parse_system_template(spec: FastChatSpec) -> Text:
    """Cut `system_template` at its slots; raise SourceError if it has others than the system message."""
    return parse_format_string(spec.system_template, ("system_message",), "system_template")


def write_system_prompt(spec: FastChatSpec, has_message: bool) -> list[Term]:
    """Return the system prompt of a conversation with or without a (non-empty) system message."""
    style = spec.style
    parts: list[Term] = []
    # The template has a variable `system`, which holds the system message.
    for part in parse_system_template(spec):
        parts.append(part if isinstance(part, str) else JinjaExpression("system"))
    has_text = any(has_message if isinstance(part, JinjaExpression) else part for part in parts)
    is_written = {
        SystemRule.ALWAYS: True,
        SystemRule.IF_PROMPT: has_text,
        SystemRule.IF_MESSAGE: has_message,
        SystemRule.NEVER: False,
    }
    if is_written[style.system]:
        return [*parts, fill_text(style.system_after, spec)]
    return [] if has_message else [style.no_system]


def _join_terms(*terms: Term) -> str:
    """Return the terms as one Jinja expression, with neighbouring texts in one literal."""
    parts: list[Term] = []
    for term in terms:
        if parts and type(term) is str and type(parts[-1]) is str:
            parts[-1] += term
        elif term:
            parts.append(term)
    return " + ".join(map(_as_expression, parts))


def _as_expression(term: Term) -> str:
    return term if isinstance(term, JinjaExpression) else literal(term)


def _print(*terms: Term) -> list[str]:
    """Return the line that writes the terms; no line if there is nothing to write."""
    expression = _join_terms(*terms)
    return [f"{{{{- {expression} -}}}}"] if expression else []


def _indent(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def _write_if(test: str, lines: list[str], otherwise: list[str] | None = None) -> list[str]:
    found = [f"{{%- if {test} -%}}", *_indent(lines)]
    if otherwise:
        found += ["{%- else -%}", *_indent(otherwise)]
    return [*found, "{%- endif -%}"]


class FastChatJinjaWriter:
    """Writes one template; the methods go from the whole to its parts."""

    def __init__(self, spec: FastChatSpec, exact: bool, other_roles: Mapping[str, str]) -> None:
        self.spec, self.exact, self.style = spec, exact, spec.style
        # The role of a message, and the text that is written for it.
        self.roles = {"user": spec.roles[0], "assistant": spec.roles[1], **other_roles}
        self.example_count = len(spec.messages)  # messages are numbered after the examples
        self.uses_parity = exact and self._depends_on_parity()
        self.merges_system = not exact and self.style.system is SystemRule.NEVER

    def write_lines(self) -> list[str]:
        """Return the lines of the whole template."""
        body = [
            *self._write_start(),
            *self._write_examples(),
            *self._write_loop(),
            *self._write_generation_prompt(),
        ]
        end = fill_text(self.style.end, self.spec)
        if self.exact and self.style.strip_end:
            stripped = JinjaExpression(f"whole.rstrip({literal(self.style.strip_end)})")
            body = ["{%- set whole -%}", *body, "{%- endset -%}", *_print(stripped, end)]
        else:
            body += _print(end)
        return [*self._write_text_macro(), *self._write_variables(), *body]

    def _write_text_macro(self) -> list[str]:
        """`text(content)`: a text, or the parts of one with its images before it."""
        other_part = literal(REFUSAL + "a part of type ")
        image = f"image_placeholder | default({literal(IMAGE_PLACEHOLDER)})"
        if self.exact and self.style.images == "dropped":
            image = "''"
        elif self.exact and self.style.images == "refused":
            image = f"raise_exception({literal(REFUSAL + 'an image')})"
        return [
            "{%- macro text(content) -%}",
            "    {%- if content is string -%}",
            "        {{- content -}}",
            "    {%- else -%}",
            "        {%- for part in content if part.type != 'text' -%}",
            "            {%- if part.type not in ['image', 'image_url'] -%}",
            f"                {{{{- raise_exception({other_part} + part.type) -}}}}",
            "            {%- endif -%}",
            f"            {{{{- {image} -}}}}",
            "        {%- endfor -%}",
            r"        {{- content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\n') -}}",
            "    {%- endif -%}",
            "{%- endmacro -%}",
        ]

    def _write_variables(self) -> list[str]:
        """What is known before the text begins: the system message, the turns, the round."""
        spec, default, lines = self.spec, literal(self.spec.system_message), []
        if spec.system_message_vision and not self.exact:
            default = f"{literal(spec.system_message_vision)} if seen.images else {default}"
            lines += [
                "{%- set seen = namespace(images=false) -%}",
                "{%- for message in messages if message.content is sequence and message.content is not string -%}",
                "    {%- for part in message.content if part.type in ['image', 'image_url'] -%}",
                "        {%- set seen.images = true -%}",
                "    {%- endfor -%}",
                "{%- endfor -%}",
            ]
        if self.style.system is not SystemRule.NEVER or self.merges_system:
            lines += [f"{{%- set system = text({SYSTEM} | default({default})) -%}}"]
        if self.merges_system:
            lines += ["{%- set waiting = namespace(system=system) -%}"]
        if self.exact:
            lines += [f"{{%- set turns = {TURNS} -%}}"]
            if self.style.keep_last:  # the open turn is one of those that are kept
                lines += [
                    f"{{%- set turns = turns[(1 if add_generation_prompt else 0) - {self.style.keep_last}:] -%}}"
                ]
        elif self.style.first_rounds:
            users = sum(role == spec.roles[0] for role, _ in spec.messages)
            lines += [f"{{%- set count = namespace(round={self._first_round + users}) -%}}"]
        return lines

    def _write_start(self) -> list[str]:
        """The bos token and the system prompt."""
        lines = []
        bos = self.style.bos
        if bos is not None:
            default_bos = JinjaExpression(f"bos_token | default({literal(bos)})")
            lines += _print(bos if self.exact else default_bos)
        prompt = _print(*write_system_prompt(self.spec, True))
        no_prompt = _print(*write_system_prompt(self.spec, False))
        # No `if` is needed where both branches write the same, or the empty message writes nothing.
        is_message_alone = prompt == _print(JinjaExpression("system")) and not no_prompt
        if prompt == no_prompt or is_message_alone:
            return lines + prompt
        return lines + _write_if("system", prompt, no_prompt)

    def _write_examples(self) -> list[str]:
        """The messages of the Conversation itself, as text."""
        lines = []
        roles = self.spec.roles[:2]
        for number, (role, content) in enumerate(self.spec.messages):
            even = number % 2 == 0
            if not self.exact and role in roles and roles[0] != roles[1]:
                even = role == roles[0]
            turn = TurnPosition(role, even, first=number == 0)
            label = ""
            if self.style.first_rounds and even:
                label = f"[Round {number // 2 + self._first_round}]{self.spec.sep_text}"
            if content is None or (self.exact and content == ""):
                lines += _print(label, self.style.pending(self.spec, turn))
                continue
            text, images = (content, ()) if isinstance(content, str) else content
            if not self.exact or self.style.images != "dropped":
                text = IMAGE_PLACEHOLDER * len(images) + text
            inner: Term = text
            if self.style.text_filter:
                inner = JinjaExpression(literal(text) + self.style.text_filter)
            after = self.style.after(self.spec, turn) + self.style.gap(self.spec, turn)
            lines += _print(label, self.style.before(self.spec, turn), inner, after)
        return lines

    def _write_loop(self) -> list[str]:
        """One turn for each message that is not the system's."""
        messages = "message in messages if message.role != 'system'"
        is_open = "message.content is none"
        if self.exact:
            messages, is_open = "message in turns", "not message.content"
        known_roles = ", ".join(map(literal, self.roles))
        lines = _write_if(
            f"message.role not in [{known_roles}] or message.tool_calls",
            [f"{{{{- raise_exception({literal(REFUSAL)} + message.role) -}}}}"],
        )
        if self.uses_parity:
            lines += [f"{{%- set even = {self._number_of('loop.index0')} is even -%}}"]
        lines += self._write_round_label()
        # A message without content is an open turn: a dict gives its text for each role.
        open_turns = [f"{literal(key)}: {self._write_open_turn(key)}" for key in self.roles]
        lines += [
            f"{{%- if {is_open} -%}}",
            f"    {{{{- {{{', '.join(open_turns)}}}[message.role] -}}}}",
        ]
        for key, text in self.roles.items():
            lines += [
                f"{{%- elif message.role == {literal(key)} -%}}",
                *_indent(self._write_turn(key, text)),
            ]
        lines += ["{%- endif -%}"]
        return [f"{{%- for {messages} -%}}", *_indent(lines), "{%- endfor -%}"]

    def _write_turn(self, key: str, role: str) -> list[str]:
        """Write a message of one role; an assistant's text is trained with its separator."""
        before = self._choose(self.style.before, role, key)
        after = self._choose(self.style.after, role, key)
        gap = self._choose(self.style.gap, role, key)
        text = JinjaExpression("text(message.content)" + self.style.text_filter)
        if key == "assistant" and not (self.exact and self.style.strip_end):
            trained = ["{%- generation -%}", *_indent(_print(text, after)), "{%- endgeneration -%}"]
            return [*_print(before), *trained, *_print(gap)]
        if self.merges_system and key == "user":
            system = JinjaExpression(r"(waiting.system + '\n\n' if waiting.system else '')")
            return [
                *_print(before, system, text, after, gap),
                "{%- set waiting.system = '' -%}",
            ]
        return _print(before, text, after, gap)

    # -- numbered rounds

    @property
    def _first_round(self) -> int:
        return self.style.first_round(self.spec)

    def _write_round_label(self) -> list[str]:
        """The label of a round, before each turn that begins one."""
        if not self.style.first_rounds:
            return []
        if self.exact:
            return _write_if("even", self._write_exact_label("loop.index0"))
        label = _print("[Round ", JinjaExpression("count.round | string"), f"]{self.spec.sep_text}")
        return _write_if(
            "message.role == 'user'", [*label, "{%- set count.round = count.round + 1 -%}"]
        )

    def _write_exact_label(self, index: str) -> list[str]:
        number = f"({self._number_of(index)} // 2 + {self._first_round}) | string"
        return _print("[Round ", JinjaExpression(number), f"]{self.spec.sep_text}")

    def _number_of(self, index: str) -> str:
        """Return an expression for the number of a message, counted with the examples."""
        if self.example_count:
            return f"({index} + {self.example_count})"
        return f"({index})" if " " in index else index

    def _write_generation_prompt(self) -> list[str]:
        lines = []
        opened = self._choose(self.style.pending, self.roles["assistant"], "assistant")
        numbered = self.style.first_rounds is not None
        if self.uses_parity and (numbered or isinstance(opened, JinjaExpression)):
            lines += [f"{{%- set even = {self._number_of('turns | length')} is even -%}}"]
        if self.uses_parity and numbered:
            lines += _write_if("even", self._write_exact_label("turns | length"))
        lines += _print(opened)
        return _write_if("add_generation_prompt", lines) if lines else []

    # -- texts that depend on the position of a message

    def _depends_on_parity(self) -> bool:
        """Return True if any text differs between even and odd messages."""
        if self.style.first_rounds is not None:
            return True
        for text in (self.style.before, self.style.after, self.style.gap, self.style.pending):
            for role in self.roles.values():
                even, odd = TurnPosition(role, even=True), TurnPosition(role, even=False)
                if text(self.spec, even) != text(self.spec, odd):
                    return True
        return False

    def _write_open_turn(self, key: str) -> str:
        return _join_terms(self._choose(self.style.pending, self.roles[key], key)) or "''"

    def _choose(self, text: TurnText, role: str, key: str) -> Term:
        """Return the text for a role at any position: a text, or a choice made while rendering."""
        # Each test decides one flag of the position, unless the role or the style already has.
        tests = {}
        if self.exact:
            tests["even"] = "even"
        if not self.example_count and text != self.style.pending:
            tests["first"] = "loop.first"
        if not self.exact:
            tests["last"] = "loop.last"
        return self._choose_by(tests, text, role, {"even": key != "assistant"})

    def _choose_by(
        self, tests: dict[str, str], text: TurnText, role: str, flags: dict[str, bool]
    ) -> Term:
        if not tests:
            return text(self.spec, TurnPosition(role, **flags))
        (flag, test), *rest = tests.items()
        yes = self._choose_by(dict(rest), text, role, {**flags, flag: True})
        no = self._choose_by(dict(rest), text, role, {**flags, flag: False})
        if yes == no and type(yes) is type(no):
            return yes
        return JinjaExpression(f"({_as_expression(yes)} if {test} else {_as_expression(no)})")
