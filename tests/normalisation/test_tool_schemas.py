"""Tools that are given as Python: functions, as transformers takes them, and pydantic models."""

from __future__ import annotations

import json
from typing import Any, Literal, Optional, Union

import pytest

import turnwise
from loaded import load_entry
from turnwise.errors import MessageError
from turnwise.messages import InputReader

HI = [{"role": "user", "content": "Hi"}]


def tide(harbour: str, days: int = 1) -> str:
    """Return the tides of a harbour.

    They are those of the next days.

    Args:
        harbour: its name,
            as sailors write it (choices: ["Brest", "Dover"])
        days: how many days

    Returns:
        A table.
    """
    return f"{harbour} {days}"


def many(
    first: list[int],
    second: Optional[str],  # noqa: UP045
    third: Union[int, str],  # noqa: UP007
    fourth: dict[str, float] | list[str],
    fifth: Literal["a", "b"] = "a",
    sixth: Any = None,
    seventh: tuple[int, str] = (1, ""),
    eighth: list | None = None,
    ninth: bool = True,
    tenth: dict = {},  # noqa: B006
) -> None:
    """Do many things.

    Args:
        first: 1
        second: 2
        third: 3
        fourth: 4
        fifth: 5
        sixth: 6
        seventh: 7
        eighth: 8
        ninth: 9
        tenth: 10
    """


class Harbours:
    def find(self, name: str) -> dict[str, str]:
        """Find a harbour.

        Args:
            name: its name
        """
        return {"name": name}


@pytest.mark.parametrize("function", [tide, many, Harbours().find])
def test_a_function_has_the_schema_of_transformers(function: Any) -> None:
    transformers = pytest.importorskip("transformers")
    expected = transformers.utils.get_json_schema(function)
    found = InputReader().read_tools([function])
    assert json.dumps(found) == json.dumps([expected])
    template = load_entry("qwen3")
    assert template.render(HI, tools=[function]).text == template.render(HI, tools=[expected]).text


def test_a_pydantic_model_is_a_function_of_its_name() -> None:
    pydantic = pytest.importorskip("pydantic")
    fields = {"harbour": (str, pydantic.Field(description="Its name."))}
    Tide = pydantic.create_model("Tide", __doc__="Tides of a harbour.", **fields)

    (tool,) = InputReader().read_tools([Tide]) or []
    assert tool["function"]["name"] == "Tide"
    assert tool["function"]["description"] == "Tides of a harbour."
    assert tool["function"]["parameters"]["required"] == ["harbour"]
    assert "Its name." in load_entry("llama-3.1").render(HI, tools=[Tide]).text


def without_hint(harbour):  # type: ignore[no-untyped-def]
    """Return the tides.

    Args:
        harbour: its name
    """


def without_docstring(harbour: str) -> None: ...


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (without_hint, "the parameter 'harbour' has no type hint"),
        (without_docstring, "it has no docstring"),
        (5, "a tool is a JSON schema, a function or a pydantic model, not int: 5"),
        (dict, "not type"),
    ],
)
def test_what_is_no_tool_is_refused(tool: Any, problem: str) -> None:
    with pytest.raises(MessageError, match=problem) as caught:
        load_entry("qwen3").render(HI, tools=[tool])
    assert caught.value.path == "tools[0]"


def test_tools_that_are_no_list_are_refused_with_a_remedy() -> None:
    with pytest.raises(MessageError, match=r"tools are a list, not dict: \{") as caught:
        load_entry("qwen3").render(HI, tools={"type": "function"})  # type: ignore[arg-type]
    assert caught.value.hint == "Put it into a list."


@pytest.mark.parametrize("odd", [{1, 2}, b"Brest"])
def test_values_that_are_no_json_are_refused(odd: object) -> None:
    tool = {"type": "function", "function": {"name": "tide", "parameters": {"enum": odd}}}
    with pytest.raises(
        turnwise.MessageError, match=r"tools\[0\]\.function\.parameters\.enum: a value"
    ):
        load_entry("qwen3").render([{"role": "user", "content": "Hi"}], tools=[tool])
