"""A recipe says what is wrong with it, and its digest changes with what decides about bytes."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import turnwise
from data_batches import make_recipe
from turnwise.data.recipe import RULES, WITHOUT_EFFECT, Recipe
from turnwise.errors import SourceError

OTHER_VALUES: dict[str, Any] = {
    "inputs": ("other.jsonl",),
    "late_system": "front",
    "template": "qwen3",
    "tokenizer": "other",
    "output": "out",
    "shape": "sharegpt",
    "columns": {"messages": "dialogue"},
    "carry_columns": ("label",),
    "drop_columns": ("label",),
    "train_on": "last",
    "samples": "turns",
    "preferences": "pairs",
    "max_length": 100,
    "overlong": "split",
    "packing": "best-fit",
    "validation": 0.1,
    "deduplicate": True,
    "shuffle": 7,
    "group_by_length": True,
    "on_bad_row": "fail",
    "on_flaw": "keep",
    "shard_format": "arrow",
    "chunk_bytes": 4096,
    "now": datetime(2026, 1, 31),
    "options": {"enable_thinking": False},
}


@pytest.mark.parametrize("name", RULES)
def test_digest_changes_with_every_value_that_decides_about_bytes(name: str) -> None:
    needed = {"max_length": 50} if name in ("packing", "overlong") else {}
    recipe = make_recipe(**needed)
    changed = replace(recipe, **{name: OTHER_VALUES[name]})
    assert (changed.digest == recipe.digest) == (name in WITHOUT_EFFECT)


def test_every_field_has_a_rule_and_a_sentence() -> None:
    names = [field.name for field in fields(Recipe)]
    assert sorted(names) == sorted(RULES) == sorted(OTHER_VALUES)
    assert all(f"        {name}: " in (Recipe.__doc__ or "") for name in names)


def test_a_recipe_survives_json() -> None:
    recipe = make_recipe(
        max_length=50, packing="best-fit", now="2026-01-31", columns={"tools": "t"}
    )
    again = Recipe.from_mapping(json.loads(json.dumps(recipe.to_mapping())))
    assert again == recipe
    assert again.digest == recipe.digest


def test_a_recipe_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        """
        inputs = ["a.jsonl", "b/*.parquet"]
        template = "qwen3"
        tokenizer = "turnwise"
        max_length = 4096
        overlong = "split"
        now = 2026-01-31
        [options]
        enable_thinking = false
        """
    )
    recipe = Recipe.from_toml(path)
    assert recipe.inputs == ("a.jsonl", "b/*.parquet")
    assert (recipe.max_length, recipe.overlong) == (4096, "split")
    assert recipe.now == datetime(2026, 1, 31)
    assert recipe.options == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"overlong": "splt", "max_length": 9},
            r"overlong must be one of .*not 'splt'[\s\S]*'split'",
        ),
        ({"train_on": "asistant"}, r"train_on must be .*[\s\S]*Did you mean 'assistant'"),
        ({"shape": "sharegtp"}, r"shape must be [\s\S]*Did you mean 'sharegpt'"),
        ({"max_length": 0}, "max_length must be a whole number from 1 up or null, not 0"),
        ({"max_length": True}, "max_length must be"),
        ({"validation": 1}, "validation must be a share"),
        ({"shuffle": "yes"}, "shuffle must be a whole number or null"),
        ({"inputs": []}, "inputs must be a list of files"),
        ({"inputs": [5]}, r"inputs\[0\] must be"),
        ({"template": ""}, "template must be"),
        ({"columns": {"mesages": "m"}}, r"unknown key 'mesages'[\s\S]*Did you mean 'messages'"),
        ({"columns": {"messages": 5}}, "columns.messages must be"),
        ({"options": {"tools": []}}, "options: 'tools' is not a variable"),
        ({"packing": "best-fit"}, "packing needs max_length"),
        ({"overlong": "truncate"}, "overlong='truncate' needs max_length"),
        ({"now": "tomorrow"}, "now must be a date, such as 2026-11-16"),
        ({"preferences": "pairs", "samples": "turns"}, "samples must be 'whole'"),
        ({"chunk_bytes": 10}, "chunk_bytes must be"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        make_recipe(**values)


def test_unknown_and_missing_keys_are_named(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('inputs = ["a"]\ntemplate = "chatml"\ntokenizer = "turnwise"\nmax_lenght = 5\n')
    with pytest.raises(
        SourceError, match=r"recipe.toml: unknown key 'max_lenght'[\s\S]*'max_length'"
    ):
        Recipe.from_toml(path)
    path.write_text('inputs = ["a"]\n')
    with pytest.raises(SourceError, match="the recipe has no 'template'"):
        Recipe.from_toml(path)
    path.write_text("inputs = [")
    with pytest.raises(SourceError, match="is not TOML"):
        Recipe.from_toml(path)
    with pytest.raises(SourceError, match="cannot be read: no such file"):
        Recipe.from_toml(tmp_path / "absent.toml")
    with pytest.raises(SourceError, match="a recipe must be a mapping"):
        Recipe.from_mapping([])  # type: ignore[arg-type]


def test_a_template_object_is_named_in_the_mapping() -> None:
    recipe = make_recipe(template=turnwise.load("chatml"))
    assert recipe.to_mapping()["template"] == "chatml"
