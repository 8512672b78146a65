"""Ollama's Modelfiles: what its templates mean, turns written as one, and what is refused.

What transformers prints for the same Jinja is compared in every case. What Ollama itself writes is compared in
`test_ollama_goldens.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from turnwise.dialects import ollama
from turnwise.dialects.ollama_go import parse
from turnwise.dialects.turns import Slot, Turns
from turnwise.errors import SourceError, TemplateRaised

SYSTEM = {"role": "system", "content": "S"}
ASK = {"role": "user", "content": "a"}
REPLY = {"role": "assistant", "content": "b"}
AGAIN = {"role": "user", "content": "c"}
CHAT = [SYSTEM, ASK, REPLY, AGAIN]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": "d",
            "parameters": {"properties": {"x": {"type": "int"}}},
        },
    }
]
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": {"name": "f", "arguments": {"x": "<1>", "a": 2}}}],
}

ROUNDS = """{{ if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}{{ if .Prompt }}<|im_start|>user
{{ .Prompt }}<|im_end|>
{{ end }}<|im_start|>assistant
{{ .Response }}<|im_end|>
"""
MESSAGES = """
{{- range $i, $_ := .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
"""
CHATML = (
    "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in CHAT)
    + "<|im_start|>assistant\n"
)


def render_both(
    source: str,
    messages: list[dict[str, Any]],
    exact: bool = False,
    tools: Any = None,
    **options: Any,
) -> str:
    """The text; transformers must print the same."""
    jinja = ollama.read(source, exact=exact).jinja
    text = (
        turnwise.compile(jinja)
        .render(messages, tools=tools, now=corpus.NOW, normalise=False, **options)
        .text
    )
    assert oracle.render(jinja, messages, tools=tools, **options) == text
    return text


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("source", [ROUNDS, MESSAGES], ids=["rounds", "messages"])
def test_both_kinds_say_the_same(source: str, exact: bool) -> None:
    assert render_both(source, CHAT, exact) == CHATML


@pytest.mark.parametrize(
    ("source", "messages", "expected"),
    [
        (
            "[INST] {{ if .System }}{{ .System }}\n\n{{ end }}{{ .Prompt }}[/INST] ",
            CHAT,
            "[INST] S\n\na[/INST] b[INST] c[/INST] ",
        ),
        (
            "[INST] {{ .Prompt }}[/INST] ",
            [ASK, REPLY, AGAIN, REPLY],
            "[INST] a[/INST] b[INST] c[/INST] b",
        ),
        (
            '{{- range .Messages }}{{ if eq .Role "user" }}[{{ .Content }}]{{ else }}{{ .Content }}{{ end }}{{ end }}',
            CHAT,
            "S[a]b[c]",
        ),
        ("{{ range .Messages }}{{ .Content }}|{{ end }}", [ASK, AGAIN, REPLY], "a\n\nc|b|"),
        (
            "{{ range .Messages }}{{ .Content }}|{{ end }}",
            [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}],
            "1|2|",
        ),
        ("{{ .System }}:{{ range .Messages }}{{ end }}", [SYSTEM, ASK, SYSTEM], "S\n\nS:"),
        ("a {{- /* trimmed */ -}} \n {{ .Prompt }}", [ASK], "aa"),
        ("{{ .Prompt -}}\n\n x{{- .Response -}} ", [ASK, REPLY], "axb"),
        ('{{ "q\\"\\n" }}{{ `r\\n` }}{{ .Prompt }}', [ASK], 'q"\nr\\na'),
        ("{{ with .System }}[{{ . }}]{{ else }}none{{ end }}{{ .Prompt }}", [ASK], "nonea"),
        ("{{ with .System }}[{{ . }}]{{ else }}none{{ end }}{{ .Prompt }}", [SYSTEM, ASK], "[S]a"),
        (
            "{{ $n := 0 }}{{ range .Messages }}{{ $n = len .Content }}{{ end }}{{ $n }}",
            [{"role": "user", "content": "abc"}],
            "3",
        ),
        (
            '{{ range .Messages }}{{ if eq .Role "system" }}{{ continue }}{{ end }}{{ .Content }}{{ break }}{{ end }}',
            CHAT,
            "a",
        ),
        ("{{ range .Messages }}{{ else }}empty{{ end }}", [], "empty"),
        (
            '{{ range .Messages }}{{ if eq .Role "user" "tool" }}u{{ else if ne .Role "system" }}n{{ end }}{{ end }}',
            CHAT,
            "unu",
        ),
        ("{{ if and .System (not .Tools) (or .Prompt .Messages) }}y{{ end }}", CHAT, "y"),
        (
            "{{ if lt 1 (len .Messages) }}y{{ end }}{{ if ge 1 2 }}n{{ end }}{{ currentDate }}",
            CHAT,
            "y2025-01-15",
        ),
        (
            "{{ range .Messages }}{{ if $.IsThinkSet }}t{{ end }}{{ if $.Think }}T{{ end }}{{ end }}",
            [ASK],
            "",
        ),
    ],
)
def test_meaning(source: str, messages: list[dict[str, Any]], expected: str) -> None:
    assert render_both(source, messages) == expected
    assert render_both(source, messages, exact=True) == expected


def test_last_message() -> None:
    source = """{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 -}}
<{{ .Role }}>{{ .Content }}
{{- if not $last }}</>{{ else if ne .Role "assistant" }}</><assistant>{{ end }}
{{- end }}"""
    assert render_both(source, [ASK]) == "<user>a</><assistant>"
    assert render_both(source, [ASK, REPLY]) == "<user>a</><assistant>b"


def test_a_finished_reply_is_cut_by_exact_alone() -> None:
    assert render_both(ROUNDS, [ASK, REPLY]).endswith("assistant\nb<|im_end|>\n")
    assert render_both(ROUNDS, [ASK, REPLY], exact=True).endswith("assistant\nb")


def test_tools_and_calls() -> None:
    source = """{{ range .Tools }}{{ .Function.Name }}(
{{- range $k, $v := .Function.Parameters.Properties }}{{ $k }}: {{ $v.Type }}{{ end }})
{{ .Function }}{{ end }}
{{ range .Messages }}{{ range .ToolCalls }}{{ .Function.Name }} {{ .Function.Arguments }}{{ end }}{{ end }}"""
    tool = '{"name":"f","description":"d","parameters":{"properties":{"x":{"type":"int"}}}}'
    assert render_both(source, [CALL], tools=TOOLS) == f'f(x: int)\n{tool}\nf {{"x":"<1>","a":2}}'
    assert render_both(source, [CALL], exact=True, tools=TOOLS).endswith(
        'f {"a":2,"x":"\\u003c1\\u003e"}'
    )
    each = "{{ range $k, $v := .Function.Arguments }}{{ $k }}={{ $v }};{{ end }}"
    each = f"{{{{ range .Messages }}}}{{{{ range .ToolCalls }}}}{each}{{{{ end }}}}{{{{ end }}}}"
    assert render_both(each, [CALL]) == "x=<1>;a=2;"
    assert render_both(each, [CALL], exact=True) == "a=2;x=<1>;"


def test_modelfile() -> None:
    file = f'''# a comment
FROM llama3
TEMPLATE """{ROUNDS}"""
system You are Bob.
PARAMETER stop "<|im_end|>"
PARAMETER stop <|im_start|>
PARAMETER temperature 0.5
MESSAGE user Hey
MESSAGE assistant """Ho
ho"""
LICENSE "free"
'''
    reading = ollama.read(file)
    assert reading.stops == ("<|im_end|>", "<|im_start|>")
    assert (
        reading.facts["parameters"]["temperature"] == ["0.5"] and reading.facts["FROM"] == "llama3"
    )
    text = render_both(file, [ASK])
    assert text.startswith(
        "<|im_start|>system\nYou are Bob.<|im_end|>\n<|im_start|>user\nHey<|im_end|>\n"
    )
    assert "assistant\nHo\nho<|im_end|>\n<|im_start|>user\na<|im_end|>" in text


def test_a_system_message_replaces_the_default() -> None:
    text = render_both(f'FROM x\nTEMPLATE """{ROUNDS}"""\nSYSTEM D', CHAT)
    assert text == CHATML


@pytest.mark.parametrize(
    "turns",
    [
        Turns(
            user=("<u>", Slot("text"), "</u>\n"),
            generation_prompt="<a>",
            reply_suffix="</a>",
            separator="\n",
        ),
        Turns(
            user=("{{ u }}", Slot("text"), '"""'),
            generation_prompt="{",
            reply_suffix='"',
            separator="\\n",
            prefix='"s',
        ),
        Turns(
            user=("U: ", Slot("text"), "\n"),
            generation_prompt="A: ",
            reply_suffix="\n",
            system=("S: ", Slot("text"), "\n"),
            default_system='D "q"',
        ),
        Turns(user=(Slot("text"),), generation_prompt="\n", eos=True),
    ],
)
def test_written(turns: Turns) -> None:
    file = ollama.write(turns, eos_token="</s>")
    closing = turns.reply_suffix + ("</s>" if turns.eos else "") + turns.separator

    def fill(text: Any, content: str) -> str:
        return "".join(part if isinstance(part, str) else content for part in text)

    system = fill(turns.system, turns.default_system or "") if turns.system else ""
    expected = (
        turns.prefix + system + fill(turns.user, "a") + turns.generation_prompt + "b" + closing
    )
    expected += fill(turns.user, "c") + turns.generation_prompt
    assert render_both(file, [ASK, REPLY, AGAIN]) == expected
    assert ollama.knows(file)


def test_written_stops() -> None:
    file = ollama.write(
        Turns(user=(Slot("text"),), eos=True, stops=("</s>", "<|x|>")),
        base="model.gguf",
        eos_token="</s>",
    )
    assert file.startswith("FROM model.gguf\n") and ollama.read(file).stops == ("</s>", "<|x|>")


def test_what_cannot_be_written() -> None:
    """The nearest is: no eos_token, the number of the first round. What `SYSTEM` cannot hold is in the template."""
    plain = ollama.write(Turns(user=(Slot("text"),)))
    assert ollama.write(Turns(user=(Slot("text"),), eos=True)) == plain
    assert ollama.write(Turns(user=("1", Slot("text")))) == ollama.write(
        Turns(user=(Slot("round"), Slot("text")))
    )
    for default in ('a """ b', ""):
        turns = Turns(user=(Slot("text"),), system=("<", Slot("text"), ">"), default_system=default)
        assert (
            turnwise.compile(ollama.write(turns), "ollama")
            .render([{"role": "user", "content": "hi"}])
            .text
            == f"<{default}>hi"
        )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "{{ .Prompt }}\n{{ call .Prompt }}",
            "line 2 .* the function 'call' is not supported\n.*Supported: and, or, .*json",
        ),
        *(
            (f"\n{{{{ {name} .Prompt }}}}", f"line 2 .* the function '{name}' is not supported")
            for name in ("html", "js", "urlquery", "print", "println")
        ),
        ("{{ jsn .Prompt }}", "the function 'jsn' .*\n.*Did you mean 'json'"),
        ("FROM x\n\nTEMPLATE {{ htm .Prompt }}", "line 3 .* 'htm'"),
        ("{{ eq .Prompt }}", "eq takes at least 2 values, not 1"),
        ("{{ not .Prompt 1 }}", "not takes 1 to 1 values, not 2"),
        ("{{ .Promt }}", r"no field \.Promt here\n.*Did you mean 'Prompt'"),
        ("{{ printf .Prompt }}", "the format of printf must be a text in quotes"),
        *(
            (
                f'{{{{ printf "{verb}" .Prompt }}}}',
                f"line 1 .* printf %{verb[1]} of a string is not",
            )
            for verb in ("%#v", "%x", "%q", "%5s", "%-4s", "%.3s", "%04d", "%d", "%T", "%t", "%f")
        ),
        ('{{ printf "%s %" .Prompt }}', "printf % without a value is not supported"),
        ('{{ printf "%s %s" .Prompt }}', "printf %s without a value is not supported"),
        ('{{ printf "a" .Prompt }}', "more values than verbs"),
        ("{{ index .Prompt 1 }}", "index of a string by a int is not supported"),
        ("{{ slice .Prompt 1 }}", "slice of a string is not supported"),
        ("{{ .Prompt }}{{ range 3 }}{{ end }}", "range goes through a list .* not a int"),
        ("{{ $m := 1 }}{{ range $m = .Messages }}{{ end }}", "changes other variables"),
        ("{{ len 3 }}{{ .Prompt }}", "the length of a int is not supported"),
        ("{{ .Tools.String }}{{ len .Messages }}", "the method .String is not supported"),
        *(
            (
                f"{{{{ .Prompt }}}}{{{{ {call} }}}}",
                "the whole data as a value of .* is not supported",
            )
            for call in ("json .", "eq . 1", "or .System .", "not $", "len $", "toTypeScriptType .")
        ),
        ("{{ .Prompt }}:{{ .Response | json }}", "a function of .Response is not supported"),
        *(
            (f'{{{{ .Prompt }}}}\n{{{{ {word} "x" . }}}}', f"line 2 .* {word} is not supported")
            for word in ("define", "template", "block")
        ),
        ("{{ break }}{{ .Prompt }}", "break belongs into a range"),
        ('{{ "a""b" }}{{ .Prompt }}', "cannot read .*\n.*separated by spaces"),
        ("{{ $x := . }}{{ .Prompt }}", "whole data"),
        ("{{ range . }}{{ end }}{{ .Prompt }}", "range goes through a list"),
        ("{{ 1i }}{{ .Prompt }}", "cannot read"),
        *(
            (f'{{{{ "{odd}" }}}}{{{{ .Prompt }}}}', "unknown escape")
            for odd in (r"\xff", r"\377", r"\ud800", r"\U00110000")
        ),
        *(
            (f"{{{{ {number} }}}}{{{{ .Prompt }}}}", "cannot read|too large, or not decimal")
            for number in (
                "'a'",
                "0x1F",
                "1_000",
                "017",
                "9" * 20,
                "9" * 9999,
                "1e999",
                "-" + "9" * 20,
            )
        ),
        ("{{ /* x */ }}{{ .Prompt }}", "cannot read"),
        ("{{ range .Messages }}{{ .Contents }}{{ end }}", "Did you mean 'Content'"),
        ("{{ $x }}{{ .Prompt }}", r"\$x is not declared"),
        ("{{ $x = 1 }}{{ .Prompt }}", r"\$x is not declared"),
        ("{{ .Prompt 1 }}", "Prompt takes no arguments"),
        ("{{ .Prompt = 1 }}", r"given to a variable like \$x"),
        ("{{ $a, $b := .Messages }}", r"given to a variable like \$x.*\n.*\$index, \$item"),
        ("{{ range $a, $b, $c := .Messages }}", "cannot read .*\n.*by one comma"),
        ("{{ . }}", "printing a value of the type map.* is not supported"),
        ("{{ if .Prompt }}", "if has no end"),
        ("{{ if .Prompt }}{{ else range .Messages }}{{ end }}", "else is followed by 'range'"),
        ("{{ .Prompt }}{{ end }}", "without a block"),
        ("{{ .Prompt", "does not end"),
        ("{{ }}{{ .Prompt }}", "a value is missing"),
        ("{{ (eq .Prompt 1 }}", "parenthesis"),
        ("{{ .Prompt ) }}", "cannot read"),
        ("{{ .Prompt ^ 1 }}", "cannot read"),
        (r'{{ "\q" }}{{ .Prompt }}', "unknown escape"),
        (
            "FRM x\nTEMPLATE {{ .Prompt }}",
            "line 1 of the Modelfile: unknown instruction 'FRM'\n.*Did you mean 'FROM'",
        ),
        ("FROM x\n", "has no TEMPLATE\n.*ollama show"),
        ("FROM x\nRENDERER qwen3", "renderer 'qwen3'"),
        ('FROM x\nTEMPLATE """{{ .Prompt }}', "line 2 of the Modelfile: .* is not closed"),
        ("FROM x\nMESSAGE bot hi", "not 'bot'"),
        (3, "must be a string, not int"),
    ],
)
def test_bad_sources(source: Any, problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        ollama.read(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ if .Prompt }}" * 5000,
        "{{ " + "(" * 5000 + ".Prompt }}",
        "{{" + "/**/" * 5000,
        "{{ " * 5000,
        "FROM x\n" * 5000,
        "{{ .System" + ".System" * 5000 + " }}",
    ],
)
def test_hostile_sources_are_refused(source: str) -> None:
    with pytest.raises(SourceError):
        ollama.read(source)


def test_knows() -> None:
    assert ollama.knows(ROUNDS) and ollama.knows(MESSAGES) and ollama.knows("FROM x")
    assert not ollama.knows(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    ) and not ollama.knows({"a": 1})
    assert not ollama.knows("hello") and not ollama.knows("{{ messages[0].content }}")


def test_lines_are_those_of_the_file() -> None:
    (first, second) = parse("{{ .Prompt }}{{ .System }}", first_line=7)
    assert first.line == second.line == 7


@pytest.mark.parametrize("text", ["abc", "é€🙂", "a%b c/&\n~", "%41", ""])
def test_go_counts_the_bytes_of_text(text: str) -> None:
    used = turnwise.compile(
        "{{ range .Messages }}{{ len .Content }}{{ end }}|{{ len .Messages }}", "ollama"
    )
    assert used.render([{"role": "user", "content": text}]).text == f"{len(text.encode())}|1"


@pytest.mark.parametrize(
    "over", ["1.5", '"abc"', ".System", "(eq 1 1)", "(json .Tools)", "currentDate"]
)
def test_range_goes_through_lists(over: str) -> None:
    with pytest.raises(
        SourceError, match="line 2 of the template: range goes through a list or a mapping"
    ):
        ollama.read(f"{{{{ .Prompt }}}}\n{{{{ range {over} }}}}x{{{{ end }}}}")


@pytest.mark.parametrize("exact", [True, False])
def test_a_field_of_another_value_fails_when_it_is_used(exact: bool) -> None:
    """Ollama reads such templates, and fails only where it comes to the field."""
    source = (
        '{{ range .Messages }}{{ if eq .Role "tool" }}{{ .Tools }}{{ end }}{{ .Content }}{{ end }}'
    )
    template = turnwise.compile(ollama.read(source, exact=exact).jinja)
    assert template.render([ASK]).text == "a"
    with pytest.raises(TemplateRaised, match=r"line 1 .* no field \.Tools .*root, \$\.Tools"):
        template.render([{"role": "tool", "content": "1"}], normalise=False)


def test_levels_of_thinking() -> None:
    source = "{{ .Think }}{{ .ThinkLevel }}{{ .IsThinkSet }}{{ len .Messages }}"
    assert render_both(source, [ASK]) == "falsefalse1"
    assert render_both(source, [ASK], enable_thinking=True) == "truemediumtrue1"
    assert render_both(source, [ASK], enable_thinking=False) == "falsetrue1"
    assert render_both(source, [ASK], reasoning_effort="high") == "truehightrue1"


@pytest.mark.parametrize(
    ("day", "before"),
    [
        ("2024-03-01", "2024-02-29"),
        ("2023-03-01", "2023-02-28"),
        ("2100-03-01", "2100-02-28"),
        ("2000-03-01", "2000-02-29"),
        ("2025-01-01", "2024-12-31"),
        ("2025-05-01", "2025-04-30"),
        ("2025-12-10", "2025-12-09"),
    ],
)
def test_yesterday(day: str, before: str) -> None:
    template = turnwise.compile("{{ yesterdayDate }}{{ len .Messages }}", "ollama")
    assert template.render([ASK], now=datetime.fromisoformat(day)).text == f"{before}1"


@pytest.mark.parametrize(
    "number", [0, 1, -1, 7.0, 0.1, 123456, 1234567, 1e20, 1e21, 1.5e-7, 12.5, 2**60, 5e-324]
)
def test_numbers_keep_their_value(number: float) -> None:
    """Go's spelling of a number of the conversation is another one than Python's, of the same number."""
    both = "{{ .Function.Arguments.n }} {{ json .Function.Arguments.n }}"
    source = f"{{{{ range .Messages }}}}{{{{ range .ToolCalls }}}}{both}{{{{ end }}}}{{{{ end }}}}"
    call = {"function": {"name": "f", "arguments": {"n": number}}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    shown, as_json = render_both(source, [message], exact=True).split(" ")
    assert float(shown) == float(as_json) == float(number)


def test_a_suffix_asks_for_the_text_before_it() -> None:
    source = "{{ if .Suffix }}<{{ .Prompt }}|{{ .Suffix }}>{{ else }}{{ .Prompt }}{{ end }}{{ .Response }}"
    assert render_both(source, [ASK]) == "a"
    assert render_both(source, [ASK], suffix="z") == "<a|z>"


def test_what_is_no_text_prints_as_json() -> None:
    source = "{{ range .Tools }}{{ .Function.Parameters }}{{ end }}{{ .Prompt }}{{ len .Messages }}"
    assert render_both(source, [ASK], tools=TOOLS) == '{"properties":{"x":{"type":"int"}}}1'
    exact = '{ <nil> <nil> [] {"x":{"type":"int"}}}<no value>1'
    assert render_both(source, [ASK], tools=TOOLS, exact=True) == exact


def test_the_last_round_has_all_functions() -> None:
    source = "{{ .Prompt | json }}:{{ .Response }}"
    assert render_both(source, [ASK, REPLY, AGAIN]) == '"a":b"c":'


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{{ .Messages }}", "printing a value of the type .*templateMessage"),
        ("{{ range .Messages }}{{ . }}{{ end }}", "printing a value of the type .*templateMessage"),
        ("{{ range .Messages }}{{ .Images }}{{ end }}", "printing a value of the type .*ImageData"),
    ],
)
def test_what_the_exact_reading_refuses(source: str, problem: str) -> None:
    """What Go prints as an address is refused when it is read."""
    with pytest.raises(
        SourceError, match=f"line 1 of the template: .*{problem}.* is not supported"
    ):
        ollama.read(source, exact=True)


def test_parentheses_are_looked_into() -> None:
    source = "{{ (index .Messages 1).Content }}{{ (index .Messages 0).Role | json }}"
    assert render_both(source, CHAT) == 'a"system"'
    assert render_both(source, CHAT, exact=True) == 'a"system"'
