"""axolotl's own loader finds the dataset type and trains the labels of turnwise: `make integrations-axolotl`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from host_chats import KINDS, TOOL, conversations, make_tokenizer
from turnwise.errors import TurnwiseWarning
from turnwise.integrations.tokenizer_template import template_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TYPE = "turnwise.integrations.axolotl"


@pytest.fixture(scope="module")
def host() -> Any:
    pytest.importorskip("axolotl")
    return pytest.importorskip("axolotl.utils.data.wrappers")


def wrap(host: Any, kind: str, dataset: Any, cfg: dict[str, Any], **settings: Any) -> Any:
    """Encode a dataset the way `axolotl preprocess` does."""
    from axolotl.utils.dict import DictDefault

    settings = DictDefault({"path": "data", "type": TYPE, **settings})
    cfg = DictDefault({"sequence_len": 4096, "dataset_num_proc": 1, **cfg})
    made, _ = host.get_dataset_wrapper(
        dataset_config=settings,
        tokenizer=make_tokenizer(kind),
        cfg=cfg,
        dataset_base_type=TYPE,
        dataset=dataset,
    )
    return made


def make_dataset(rows: list[dict[str, Any]]) -> Any:
    """A dataset whose tools are JSON, since Arrow would pad the schemas of one row with the names of another."""
    import datasets

    return datasets.Dataset.from_list(
        [
            {
                "messages": row["messages"],
                "tools": json.dumps(row["tools"]) if row["tools"] else None,
            }
            for row in rows
        ]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_those_of_the_template(host: Any, kind: str) -> None:
    rows = conversations()
    assert len(rows) >= 20 and any(row["tools"] == [TOOL] for row in rows)
    made = wrap(host, kind, make_dataset(rows), {})
    tokenizer = make_tokenizer(kind)
    template = template_of(tokenizer)
    expected = []
    for row in rows:
        expected += template.examples(row["messages"], tokenizer, tools=row["tools"])
    assert made["input_ids"][:] == [one.input_ids for one in expected]
    assert made["labels"][:] == [one.labels for one in expected]
    assert made["attention_mask"][:] == [[1] * len(one) for one in expected]


def test_settings_of_axolotl(host: Any) -> None:
    dataset = make_dataset(conversations()[:2]).rename_column("messages", "turns")
    chosen = wrap(host, "qwen3", dataset, {"chat_template": "llama3"}, field_messages="turns")
    decoded = make_tokenizer("qwen3").decode(chosen["input_ids"][0])
    assert "<|start_header_id|>" in decoded
    everything = wrap(host, "qwen3", dataset, {"train_on_inputs": True}, field_messages="turns")
    assert all(label != -100 for label in everything["labels"][0])


def test_bad_rows_are_left_out_and_named(host: Any) -> None:
    unanswered = {"messages": [{"role": "user", "content": "nobody answers"}], "tools": None}
    dataset = make_dataset([*conversations()[:2], unanswered])
    with pytest.warns(TurnwiseWarning, match="a row is left out: nothing is trained.*nobody"):
        made = wrap(host, "qwen2.5", dataset, {"dataset_num_proc": None})
    assert len(made) == 2
