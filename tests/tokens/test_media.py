"""Media parts: their placeholders by origin, and the tokens of placeholders that are repeated."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpus
import turnwise
from turnwise.engine.provenance.media import find_placeholder
from turnwise.errors import MessageError, TokenizerError, TurnwiseWarning
from turnwise.template import Template
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.media import find_pad
from turnwise.tokens.tokenizers import Tokenizer, huggingface
from vocabularies import SHIPPED, law

IMAGE = {"type": "image", "image": "a.png"}
VIDEO = {"type": "video", "video": "a.mp4"}
VISION = "<|vision_start|><|image_pad|><|vision_end|>"

# Templates of five families and more, and what they write for an image.
PLACEHOLDERS = {
    "axolotl-qwen2_vl": VISION,
    "trl-qwen2_5_vl": VISION,
    "trl-qwen3_vl": VISION,
    "hfjs-meta-llama--Llama-3.2-11B-Vision-Instruct": "<|image|>",
    "axolotl-gemma3": "<start_of_image>",
    "axolotl-llava": "<image>",
    "trl-llava_next": "<image>",
    "trl-idefics3": "<image>",
    "axolotl-pixtral": "[IMG]",
    "mistralcommon-v11_image": "[IMG]",
    "hfjs-LiquidAI--LFM2.5-VL-450M": "<image>",  # joins the parts in a variable
    "hfjs-moonshotai--Kimi-K2-Thinking": (
        "<|media_start|>image<|media_content|><|media_pad|><|media_end|>"
    ),
    "llamacpp-Cohere2MoE": "<|IMG_PATCH|>",  # closes the text before an image as well
    "llamacpp-Kimi-K3": "<|kimi_image_placeholder|>",
    "unsloth-gemma4": "<|image|>",
}
FORGED = "see <|image_pad|> <image> [IMG] <|image|> <start_of_image>"

# Ways to write the parts of a content: all give `<image>` for an image.
WAYS = {
    "loop": "{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}",
    "numbers": (
        "{% for n in range(m.content | length) %}{% if m.content[n].type == 'image' %}<image>"
        "{% else %}{{ m.content[n].text }}{% endif %}{% endfor %}"
    ),
    "variable": (
        "{% set parts = m.content %}{% for p in parts %}{% if p.type == 'image' %}<image>"
        "{% else %}{{ p.text }}{% endif %}{% endfor %}"
    ),
    "namespace": (
        "{% set ns = namespace(all='[INST]') %}{% for p in m.content %}{% if p.type == 'image' %}"
        "{% set ns.all = ns.all ~ '<image>' %}{% else %}{% set ns.all = ns.all ~ p.text %}{% endif %}"
        "{% endfor %}{{ ns.all | trim }}"
    ),
    "list": (
        "{% set ns = namespace(all=['[INST]']) %}{% for p in m.content %}"
        "{% set ns.all = ns.all + ['<image>' if p.type == 'image' else p.text] %}{% endfor %}"
        "{{ ns.all | join(' ') }}"
    ),
    "block": (
        "{% set ns = namespace(all='') %}{% for p in m.content %}{% set x %}{% if p.type == 'image' %}"
        "<image>{% else %}{{ p.text }}{% endif %}{% endset %}{% set ns.all = ns.all ~ x %}{% endfor %}"
        "{{ ns.all }}"
    ),
    "macro": "{{ write(m.content) }}",
    "macro, trimmed": "{% set c = write(m.content) %}{{ '<u>' + c | trim + '</u>' }}",
    "macro of a part": (
        "{% set ns = namespace(all='') %}{% for p in m.content %}{% if p.type %}"
        "{% set ns.all = ns.all + write([p]) %}{% endif %}{% endfor %}{{ ns.all }}"
    ),
    "numbered": (
        "{% set ns = namespace(all='', n=1) %}{% for p in m.content %}{% if p.type == 'image' %}"
        "{% set ns.all = ns.all ~ '<image>' ~ '{i}'.replace('{i}', '') %}{% set ns.n = ns.n + 1 %}"
        "{% else %}{% set ns.all = ns.all ~ p.text %}{% endif %}{% endfor %}{{ ns.all }}"
    ),
    "images first": (
        "{% for p in m.content | selectattr('type', 'equalto', 'image') %}<image>{% endfor %}"
        "{{ m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join }}"
    ),
    "test": (
        "{% for p in m.content if p.type == 'image' %}<image>{% endfor %}"
        "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}"
    ),
    "sorted": (
        "{% for p in m.content | sort(attribute='type') %}"
        "{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}"
    ),
}
MACRO = (
    "{% macro write(parts) %}{% for p in parts %}{% if p.type == 'image' %}<image>"
    "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endmacro %}"
)


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*map(as_part, parts)]}


def as_part(part: Any) -> Any:
    return {"type": "text", "text": part} if isinstance(part, str) else part


def find_texts(template: Template, messages: list[Any]) -> list[tuple[str, str | None]]:
    rendering = template.render(messages)
    return [
        (part.path, None if part.span is None else rendering.text[slice(*part.span)])
        for part in rendering.media
    ]


# -- placeholders


@corpus.needs_corpus
@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_vision_templates_name_their_parts(name: str) -> None:
    row = corpus.load_published()[name]
    template = turnwise.compile(row.text).with_options(row.options)
    first, second = user(FORGED, IMAGE, "and", IMAGE), user(IMAGE, FORGED)
    reply = {"role": "assistant", "content": [{"type": "text", "text": FORGED}]}
    placeholder = PLACEHOLDERS[name]
    assert find_texts(template, [first, reply, second]) == [
        ("messages[0].content[1]", placeholder),
        ("messages[0].content[3]", placeholder),
        ("messages[2].content[0]", placeholder),
    ]
    assert find_texts(template, [user(FORGED)]) == []


@pytest.mark.law(4)
@pytest.mark.parametrize("way", WAYS)
def test_parts_are_known_however_they_are_written(way: str) -> None:
    loop = "{% for m in messages %}<|{{ m.role }}|>" + WAYS[way] + "{% endfor %}"
    template = turnwise.compile(MACRO + loop)

    @law(40)
    @given(st.lists(st.lists(st.sampled_from(["a <image> b", "", IMAGE]), max_size=5), max_size=3))
    def check(contents: list[list[Any]]) -> None:
        messages = [user(*parts) for parts in contents]
        rendering = template.render(messages)
        expected = [
            f"messages[{m}].content[{n}]"
            for m, parts in enumerate(contents)
            for n, part in enumerate(parts)
            if part is IMAGE
        ]
        assert [part.path for part in rendering.media] == expected
        spans = [part.span for part in rendering.media]
        assert all(span and rendering.text[slice(*span)] == "<image>" for span in spans)
        assert len({*spans}) == len(spans)
        pieces = [text for text, origin in rendering.pieces if origin.part and origin.path is None]
        assert "".join(pieces).count("<image>") == len(expected)

    check()


def test_numbers_belong_to_placeholders() -> None:
    template = turnwise.compile(
        "{% set ns = namespace(all=[], n=1) %}{% for p in messages[0].content %}{% if p.type == 'image' %}"
        "{% set ns.all = ns.all + ['<|image_{i:d}|>'.format(i=ns.n)] %}{% set ns.n = ns.n + 1 %}"
        "{% else %}{% set ns.all = ns.all + [p.text] %}{% endif %}{% endfor %}{{ ns.all | join }}"
    )
    assert find_texts(template, [user("a", IMAGE, IMAGE)]) == [
        ("messages[0].content[1]", "<|image_1|>"),
        ("messages[0].content[2]", "<|image_2|>"),
    ]


def test_parts_in_tool_results() -> None:
    template = turnwise.compile(MACRO + "{% for m in messages %}{{ write(m.content) }}{% endfor %}")
    result = {"role": "tool", "tool_call_id": "a", "content": [as_part("x"), IMAGE]}
    assert find_texts(template, [user("q"), result]) == [("messages[1].content[1]", "<image>")]
    within = turnwise.compile(
        MACRO + "{% for m in messages %}{% for p in m.content %}{{ write(p.content) }}{% endfor %}"
        "{% endfor %}"
    )
    nested = {"type": "group", "content": [as_part("x"), IMAGE]}
    assert find_texts(within, [user(nested)]) == [
        ("messages[0].content[0].content[1]", "<image>"),
    ]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": "u"}}, "image"),
        ({"type": "input_image", "image_url": "u"}, "image"),
        ({"image": "u"}, "image"),
        ({"type": "video_url", "video_url": {"url": "u"}}, "video"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "audio"),
        ({"type": "audio", "audio_url": "u"}, "audio"),
        ({"type": "file", "file": {"file_id": "a"}}, "file"),
        ({"type": "text", "text": "x", "image": None}, None),
        ({"type": "text", "text": "an image"}, None),
        ("image", None),
    ],
)
def test_kinds(part: Any, kind: str | None) -> None:
    template = turnwise.compile("{% for m in messages %}{{ m.role }}{% endfor %}")
    media = template.render([{"role": "user", "content": [part]}]).media
    assert [(one.kind, one.span, one.written) for one in media] == (
        [(kind, None, False)] if kind else []
    )


@pytest.mark.parametrize(
    ("text", "placeholder"),
    [
        ("<image>\n", "<image>"),
        ("Picture 1: <|vision_start|><|image_pad|><|vision_end|>", VISION),
        ("<|END_TEXT|><|IMG|>", "<|IMG|>"),
        ("<|END_TEXT|>", None),
        ("<|IMG|><|START_TEXT|>", "<|IMG|>"),
        ("<start_of_image>", "<start_of_image>"),
        ("$$<image>$$\n", "$$<image>$$"),
        ("(<image>./</image>)", "(<image>./</image>)"),
        (" (image) ", "(image)"),
        (", ", None),
        ("\n", None),
        ('{"\0\0\0": ["\0"]}', None),  # JSON: all its words are the user's
        ('<img src="\0\0">', '<img src="\0\0">'),
    ],
)
def test_where_a_placeholder_begins_and_ends(text: str, placeholder: str | None) -> None:
    span = find_placeholder(text)
    assert (None if span is None else text[slice(*span)]) == placeholder


def test_parts_that_are_printed_whole_have_no_placeholder() -> None:
    for way in ("{{ m.content }}", "{% for p in m.content %}{{ p | tojson }}{% endfor %}"):
        template = turnwise.compile("{% for m in messages %}" + way + "{% endfor %}")
        found = template.render([user("x", IMAGE)], normalise=False).media
        assert [(part.path, part.span) for part in found] == [("messages[0].content[1]", None)]


def test_origins_of_parts() -> None:
    rendering = turnwise.load("qwen2.5-vl").render([user("Hi", IMAGE)])
    assert rendering.spans(part="messages[0].content[1]") == [rendering.media[0].span]
    (start, end), *_ = rendering.spans(part="messages[0].content[0]")
    assert rendering.text[start:end] == "Hi"
    assert pickle.loads(pickle.dumps(rendering)).media == rendering.media
    assert turnwise.load("chatml").render([{"role": "user", "content": "Hi"}]).media == ()


def test_a_part_ends_with_its_loop_and_its_message() -> None:
    template = turnwise.compile(
        "{% for m in messages %}<{{ m.role }}>{{ m.content[0].text }}"
        "{% for p in m.content %}{{ '<image>' if p.type == 'image' }}{% endfor %}</s>{% endfor %}"
    )
    chat = [user("", IMAGE), user("x", IMAGE)]
    rendering = template.render(chat)
    assert find_texts(template, chat) == [
        ("messages[0].content[1]", "<image>"),
        ("messages[1].content[1]", "<image>"),
    ]
    heads = [origin.part for text, origin in rendering.pieces if text == "<"]
    assert heads == [None, None]


# -- dropped parts


def test_dropped_parts_are_reported() -> None:
    template = turnwise.load("qwen2.5-vl")
    messages = [user("Hi", {"type": "audio", "audio": "a.wav"}, IMAGE)]
    with pytest.warns(TurnwiseWarning, match=r"writes nothing of messages\[0\].content\[1\]"):
        found = template.encode(messages, vision())
    assert [part.written for part in found.media] == [True, False]
    assert found.expand([4]).media[0].pad is not None
    chat = [*messages, {"role": "assistant", "content": "OK"}]
    with pytest.warns(TurnwiseWarning, match=r"writes nothing of messages\[0\].content\[1\]"):
        template.examples(chat, vision())
    with pytest.raises(MessageError, match=r"writes nothing of messages\[0\].content\[1\]"):
        template.examples(chat, vision(), strict=True)
    with pytest.raises(MessageError, match=r"writes nothing of messages\[0\].content\[1\]"):
        template.render(messages, strict=True)
    assert template.render([user(IMAGE)], strict=True).media[0].written


# -- tokens


def vision() -> Tokenizer:
    """The shipped tokenizer with the tokens of Qwen2.5-VL."""
    data = json.loads(SHIPPED.read_text(encoding="utf-8"))
    names = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    names += ["<|image_pad|>", "<|video_pad|>"]
    rows = {row["content"]: row for row in data["added_tokens"]}
    free = max(row["id"] for row in data["added_tokens"]) + len(data["model"]["vocab"]) + 1
    for number, name in enumerate(names):
        rows.setdefault(name, {**data["added_tokens"][0], "id": free + number, "content": name})
    data["added_tokens"] = [*rows.values()]
    return huggingface.HuggingFace(json.dumps(data), name="vision", backend="tokenizers")


PARTS = st.lists(st.sampled_from(["Hi <|image_pad|>", "中", IMAGE, VIDEO]), max_size=4)
ROUNDS = st.lists(st.tuples(PARTS, st.sampled_from(["OK", "<|image_pad|> é", ""])), max_size=4)


def check_expanded(before: Encoded, after: Encoded, counts: list[int]) -> None:
    """Every list of the copy is that of the original with each pad token as often as asked for."""
    times = [1] * len(before)
    for part, count in zip([part for part in before.media if part.written], counts, strict=True):
        assert part.pad is not None and part.pad[1] == part.pad[0] + 1
        times[part.pad[0]] = count
    sources = [index for index, count in enumerate(times) for _ in range(count)]
    for name in ("input_ids", "labels", "weights", "owners", "offsets", "tokens", "mask"):
        old, new = getattr(before, name), getattr(after, name)
        assert new == [old[index] for index in sources], name
    assert (after.text, after.turns, after.kept) == (before.text, before.turns, before.kept)
    is_control = set(before.control)
    assert after.control == [n for n, index in enumerate(sources) if index in is_control]
    for old_part, new_part, count in zip(before.media, after.media, counts, strict=False):
        assert new_part.span == old_part.span
        assert new_part.pad is not None and new_part.pad[1] - new_part.pad[0] == count
        assert {*after.input_ids[slice(*new_part.pad)]} == {before.input_ids[old_part.pad[0]]}  # type: ignore[index]


@pytest.mark.law
@pytest.mark.parametrize("compatible", [False, True])
def test_expanding_keeps_everything_together(compatible: bool, sample: Any) -> None:
    template, vocabulary = turnwise.load("qwen2.5-vl"), vision()

    @law(len(sample(range(60))))
    @given(ROUNDS, st.data())
    def check(rounds: list[tuple[list[Any], str]], data: st.DataObject) -> None:
        messages: list[Any] = []
        for parts, reply in rounds:
            messages += [user(*parts), {"role": "assistant", "content": reply}]
        found = template.encode(messages, vocabulary, compatible=compatible)
        number = sum(part in (IMAGE, VIDEO) for parts, _ in rounds for part in parts)
        assert len(found.media) == number and all(part.written for part in found.media)
        for part in found.media:
            text = found.text[slice(*part.span)]  # type: ignore[misc]
            assert text == VISION.replace("image", part.kind)
            assert "".join(found.tokens[slice(*part.tokens)]) == text  # type: ignore[misc]
        counts = data.draw(st.lists(st.integers(1, 9), min_size=number, max_size=number))
        wide = found.expand(counts)
        check_expanded(found, wide, counts)
        by_path = {part.path: count for part, count in zip(found.media, counts, strict=True)}
        assert found.expand(by_path).input_ids == wide.input_ids
        copy = pickle.loads(pickle.dumps(wide))
        assert (copy.media, copy.tokens, copy.offsets) == (wide.media, wide.tokens, wide.offsets)
        narrow = wide.expand([1] * number)
        check_expanded(narrow, wide, counts)
        assert narrow.input_ids == found.input_ids

    check()


def test_media_are_counted_as_the_caller_does() -> None:
    template, vocabulary = turnwise.load("qwen2.5-vl"), vision()
    messages = [user("long " * 50, IMAGE), {"role": "assistant", "content": "OK"}, user(IMAGE, "x")]
    found = template.encode(messages, vocabulary, max_length=60)
    assert [part.path for part in found.media] == ["messages[2].content[0]"]
    assert found.owners[found.media[0].pad[0]].part == "messages[2].content[0]"  # type: ignore[index]


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ([], "0 counts for 1 media parts"),
        ([1, 2], "2 counts for 1 media parts"),
        ([0], "at least 1, not 0"),
        ([-3], "at least 1, not -3"),
        ([1.0], "an integer, not 1.0"),
        ([True], "an integer, not True"),
        (["7"], "an integer, not '7'"),
        ("7", "not str"),
        (None, "not NoneType"),
        ({}, r"no count for messages\[0\].content\[0\]"),
        ({"messages[0].content[1]": 1}, r"no media part 'messages\[0\].content\[1\]'"),
    ],
)
def test_bad_counts_are_refused(counts: Any, problem: str) -> None:
    found = turnwise.load("qwen2.5-vl").encode([user(IMAGE)], vision())
    with pytest.raises(MessageError, match=problem):
        found.expand(counts)


def test_integers_of_arrays_are_counts() -> None:
    numpy = pytest.importorskip("numpy")
    found = turnwise.load("qwen2.5-vl").encode([user(IMAGE)], vision())
    assert len(found.expand(numpy.array([5]))) == len(found) + 4


def test_the_caller_may_name_the_pad_token() -> None:
    vocabulary = vision()
    found = turnwise.load("qwen2.5-vl").encode([user(IMAGE)], vocabulary)
    end = vocabulary.added["<|vision_end|>"].id
    for token in ("<|vision_end|>", end):
        assert found.expand([3], token=token).input_ids.count(end) == 3
    with pytest.raises(TokenizerError, match="has no token '<x>'"):
        found.expand([3], token="<x>")
    plain = turnwise.compile(
        MACRO + "{% for m in messages %}{{ write(m.content) }}<|im_end|>{% endfor %}"
    )
    spelled = plain.encode([user(IMAGE)], vocabulary)
    with pytest.raises(TokenizerError, match="no token of the placeholder '<image>'"):
        spelled.expand([3])
    *first, last, stop = spelled.input_ids
    assert spelled.expand([3], token=last).input_ids == [*first, last, last, last, stop]


@pytest.mark.parametrize(
    ("placeholder", "pad"),
    [
        (["<|image|>"], "<|image|>"),
        (["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"], "<|image_pad|>"),
        (["<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"], "<|AUDIO|>"),
        (["<img>", "<IMG_CONTEXT>", "</img>"], "<IMG_CONTEXT>"),
        (["<around>", "<image>", "<around>"], "<image>"),
        (["<|begin_of_image|>", "<|image|>", "<|end_of_image|>"], "<|image|>"),
        (
            ["<|media_start|>", "image", "<|media_content|>", "<|media_pad|>", "<|media_end|>"],
            "<|media_pad|>",
        ),
        (["<start_of_image>"], "<start_of_image>"),
        (["<image>", "<image>", "<image>"], "<image>"),
        (["<img>", "</img>"], None),
        (["<", "image", ">"], None),
    ],
)
def test_which_token_is_repeated(placeholder: list[str], pad: str | None) -> None:
    ids = [placeholder.index(token) for token in placeholder]
    texts = {
        id: placeholder[id] for id in ids if len(placeholder[id]) > 1 and "<" in placeholder[id]
    }
    found = find_pad(ids, texts)
    assert (None if found is None else placeholder[found[0]]) == pad
    assert found is None or {placeholder[index] for index in range(*found)} == {pad}
