"""The vocabulary that ships with the package, encoded by fastokens alone: what an install without extras does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwise.tokens.tokenizers import AFTER, START, WITHIN, files, tokenizer
from turnwise.tokens.tokenizers.fastokens import read_shipped
from turnwise.tokens.tokenizers.special_tokens_config import read_declarations
from vocabularies import SNIPPETS, law

ALONE = read_shipped(
    (files.SHIPPED / "tokenizer.json").read_text(encoding="utf-8"),
    "turnwise",
    read_declarations(files.SHIPPED).named,
)


@law(150)
@given(
    st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=12)), max_size=8).map("".join)
)
def test_the_shipped_vocabulary_without_the_reference(text: str) -> None:
    """What a bare install encodes with: nothing of it differs from the reference."""
    reference = tokenizer("turnwise", backend="tokenizers")
    for position in (START, AFTER, WITHIN):
        ids = reference.encode(text, position)
        assert ALONE.encode(text, position) == ids
        assert ALONE.offsets(text, ids, position) == reference.offsets(text, ids, position)
    whole = reference.whole(text)
    assert ALONE.whole(text) == whole
    for part in (whole, whole[1:], whole[:-1], whole[::2], whole[::-1]):
        assert ALONE.decode(part) == reference.decode(part)


def test_tables_of_the_shipped_vocabulary() -> None:
    reference = tokenizer("turnwise", backend="tokenizers")
    for name in ("name", "added", "named", "native"):
        assert getattr(ALONE, name) == getattr(reference, name)
    first_added = min(token.id for token in reference.added.values())
    for id in range(first_added + len(reference.added) + 1):
        text = reference.token(id)
        assert ALONE.token(id) == text and ALONE.id(text or "") == reference.id(text or "")
        assert id >= first_added or ALONE.token_bytes(id) == reference.token_bytes(id)
