"""Code of XTuner, PaddleNLP and LMDeploy, run out of checkouts of their repositories.

None of them installs without a framework for GPUs, so their files are run with as much of what they import as they use.
Environment variables name the checkouts; where there is none, tests that need it are skipped:

    TURNWISE_XTUNER     XTuner b934f462
    TURNWISE_PADDLENLP  PaddleNLP ff7ee8ad
    TURNWISE_LMDEPLOY   LMDeploy 0.9.2
"""

from __future__ import annotations

import ast
import copy
import importlib
import logging
import os
import sys
import types
from collections.abc import Callable
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

Chat = list[dict[str, str]]
OPEN = "\ue000"  # stands for a reply that is not there yet


def find_checkout(name: str) -> Path:
    """Return the folder that an environment variable names; it is not there if none does."""
    return Path(os.environ.get(f"TURNWISE_{name.upper()}") or "/nonexistent")


class AttributeDict(dict[str, Any]):
    """mmengine's dict, as far as XTuner's templates use it."""

    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)
        for key, value in self.items():
            self[key] = AttributeDict(value) if isinstance(value, dict) else value

    __getattr__ = dict.__getitem__


class RegistryStandIn:
    """mmengine's registry of classes by name."""

    def __init__(self, name: str, **_: Any) -> None:
        self.module_dict: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        return self.module_dict.get(name)

    def register_module(self, name: Any = None, module: Any = None, **_: Any) -> Any:
        def register(found: Any) -> Any:
            for each in name if isinstance(name, list) else [name or found.__name__]:
                self.module_dict[each] = found
            return found

        return register if module is None else register(module)


@cache
def load_xtuner() -> dict[str, Any]:
    """Return the names of XTuner's map functions, templates and encoding."""
    added: list[str] = []

    def module(name: str, **values: Any) -> None:
        made = types.ModuleType(name)
        made.__dict__.update(values)
        made.__spec__ = ModuleSpec(name, None)  # which other libraries look for
        if sys.modules.setdefault(name, made) is made:
            added.append(name)

    module("mmengine", print_log=lambda *_, **__: None)
    module("mmengine.config", Config=AttributeDict, ConfigDict=AttributeDict)
    module("mmengine.registry", Registry=RegistryStandIn)
    module("mmengine.utils")
    module("mmengine.utils.misc", get_object_from_string=None)
    module("torch", distributed=types.SimpleNamespace(is_available=lambda: False))
    module("PIL", Image=None)
    module("requests")
    for package in ("xtuner", "xtuner.dataset", "xtuner.utils"):
        module(package)
        sys.modules[package].__path__ = [str(find_checkout("xtuner").joinpath(*package.split(".")))]
    names: dict[str, Any] = {}
    utils = sys.modules["xtuner.utils"]
    for part in ("utils.constants", "utils.templates"):
        utils.__dict__.update(vars(importlib.import_module(f"xtuner.{part}")))
    for part in ("dataset.map_fns", "dataset.huggingface", "dataset.utils", "utils.templates"):
        names.update(vars(importlib.import_module(f"xtuner.{part}")))
    for name in added:  # other libraries look whether they are there
        del sys.modules[name]
    return names


class _Letters:
    """A tokenizer with one id for each character."""

    bos_token_id, eos_token_id = 1, 2

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(letter) + 10 for letter in text]


def write_xtuner(source: dict[str, Any], chat: Chat, is_prompt: bool, tokens: Any) -> str:
    """Return the text of the ids that XTuner encodes; up to the reply if it is a prompt."""
    original = load_xtuner()
    rounds: list[dict[str, str]] = []
    system = ""
    for message in chat:
        if message["role"] == "system":
            system = message["content"]
        elif message["role"] == "user":
            rounds.append({"system": system, "input": message["content"], "output": OPEN})
            system = ""
        else:
            rounds[-1]["output"] = message["content"]
    row = original["template_map_fn"]({"conversation": rounds}, AttributeDict(source))
    ids = original["encode_fn"](row, _Letters(), 10**6)["input_ids"]
    special = {1: tokens["bos_token"], 2: tokens["eos_token"]}
    text = "".join(special.get(id) or chr(id - 10) for id in ids)
    return text.partition(OPEN)[0] if is_prompt else text


@cache
def load_paddlenlp() -> Any:
    """Return PaddleNLP's class ChatTemplate."""
    file = find_checkout("paddlenlp") / "paddlenlp/transformers/tokenizer_utils.py"
    code = "from __future__ import annotations\nimport json\nfrom dataclasses import dataclass\n"
    code += "from functools import lru_cache\nfrom typing import *\nfrom jinja2 import Template\n"
    code += "from jinja2.exceptions import TemplateError\n"
    code += "from jinja2.sandbox import ImmutableSandboxedEnvironment\n"
    return _run_class(file, "ChatTemplate", code)


def _run_class(file: Path, name: str, imports: str) -> Any:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    namespace: dict[str, Any] = {"logger": logging.getLogger(name), "__name__": __name__}
    module = ast.Module([*ast.parse(imports).body, found], [])
    exec(compile(module, str(file), "exec"), namespace)
    return namespace[name]


def write_paddlenlp(source: dict[str, Any], chat: Chat, is_prompt: bool, tokens: Any) -> str:
    """Return the text of a prompt, or of rounds as PaddleNLP renders them for training."""
    template = load_paddlenlp()(**source)
    context: dict[str, Any] = {"is_training": not is_prompt}
    turns = [message["content"] for message in chat]
    if chat[0]["role"] == "system":
        context["system"] = turns.pop(0)
    rounds = [turns[at : at + 2] for at in range(0, len(turns), 2)]
    if is_prompt:
        return str(template(rounds, context))
    text = template.render_system(context_data=context)
    for index, each in enumerate(rounds):
        context |= {"is_first": index == 0, "is_last": index == len(rounds) - 1}
        text += "".join(template.render_conversation(each, index=index, context_data=context))
    return str(text)


@cache
def load_lmdeploy() -> dict[str, Any]:
    """Return the names of LMDeploy's model.py."""
    file = find_checkout("lmdeploy") / "lmdeploy/model.py"
    stand_ins = {
        "mmengine": types.SimpleNamespace(Registry=RegistryStandIn),
        "lmdeploy.utils": types.SimpleNamespace(get_logger=logging.getLogger),
        "lmdeploy": types.SimpleNamespace(),
    }
    before = {name: sys.modules.get(name) for name in stand_ins}
    made = types.ModuleType("lmdeploy_model")
    sys.modules.update({**stand_ins, "lmdeploy_model": made})  # type: ignore[dict-item]
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), made.__dict__)
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
    return vars(made)


def write_lmdeploy(source: dict[str, Any], chat: Chat, is_prompt: bool, tokens: Any) -> str:
    """Return what LMDeploy writes for messages; it leaves a final reply open."""
    config = load_lmdeploy()["ChatTemplateConfig"](**{"model_name": "base", **source})
    registry = load_lmdeploy()["MODELS"]
    registry.module_dict["mine"] = load_lmdeploy()["BaseChatTemplate"]
    config.model_name = "mine"
    return str(config.chat_template.messages2prompt(copy.deepcopy(chat)))


WRITERS: dict[str, Callable[[Any, Chat, bool, Any], str]] = {
    "xtuner": write_xtuner,
    "paddlenlp": write_paddlenlp,
    "lmdeploy": write_lmdeploy,
}
"""What runs the original of a dialect."""


def has_original(dialect: str) -> bool:
    """Return True if there is a checkout with the code of a dialect."""
    return dialect in WRITERS and find_checkout(dialect).is_dir()
