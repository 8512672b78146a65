r"""LMDeploy's chat template module, by its own names: change the import, and the rest stays.

    from turnwise.compat.lmdeploy import MODELS, ChatTemplateConfig     # was: lmdeploy.model

A model of `MODELS` has the fields of its template as attributes, which may be changed, `get_prompt` for a string and
`messages2prompt` for messages. The text is that of LMDeploy 0.9.2, to the byte: the reply is always opened, a final
assistant message is always continued, and tools are written as they are given. `turnwise.load("lmdeploy:vicuna")` is
the same template without LMDeploy's defects, and with stops, labels and a parser.

    @MODELS.register_module(name="mine")
    class MyTemplate(BaseChatTemplate):
        def __init__(self, user="Q: ", eoh="\n", assistant="A:", **fields):
            super().__init__(user=user, eoh=eoh, assistant=assistant, **fields)

Its classes can be imported by their names (`Llama3`), to be inherited from. Differences from LMDeploy: messages are not
changed (it inserts the tools), messages for `base` raise an error (it returns None), an unknown field is a warning, and
so is what it logs. `hf`, the template of newer versions for all other models, is `HFChatTemplate`: `turnwise.load`.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from turnwise.dialects import lmdeploy
from turnwise.dialects.lmdeploy_jinja import write_jinja
from turnwise.dialects.translation import object_in
from turnwise.errors import SourceError, did_you_mean, short_repr, warn_caller
from turnwise.messages import JsonObject
from turnwise.registry import load
from turnwise.registry.lmdeploy import find_template
from turnwise.schema import check_table
from turnwise.shapes.row import drop_nulls
from turnwise.template import Template, compile_jinja

__all__ = [
    "MODELS",
    "BaseChatTemplate",
    "BaseModel",
    "ChatTemplateConfig",
    "HFChatTemplate",
    "best_match_model",
]

ModelClass = TypeVar("ModelClass", bound="type[BaseModel]")
Messages = str | list[JsonObject]

POSITIONS = (
    *("system", "meta_instruction", "eosys", "user", "eoh", "assistant", "eoa"),
    *("separator", "tool", "eotool"),
)
"""The fields of a chat template in the order of LMDeploy's arguments."""
NO_TEXT = {"model_name", "model_path", "trust_remote_code", "session_len"}
"""Arguments of LMDeploy's classes that change no text."""


class UnknownCapability(SourceError, AssertionError):
    """CodeLlama has no such capability; LMDeploy raises AssertionError."""


class InvalidConfig(SourceError, ValueError):
    """A text is neither the path of a file nor JSON; LMDeploy raises ValueError."""


class RegisteredName(SourceError, KeyError):
    """The name is taken; LMDeploy's registry raises KeyError."""


class BaseModel:
    """A model without a chat template: a string is its own prompt."""

    own_fields: JsonObject = {"style": "completion"}
    names: tuple[str, ...] = ()

    def __init__(self, **fields: Any) -> None:
        known = {**lmdeploy.DEFAULTS, **self.own_fields}
        for name in sorted(fields.keys() - known.keys() - NO_TEXT):
            hint = did_you_mean(name, known, "It has")
            warn_caller(f"{type(self).__name__} has no field {name!r}, and ignores it. {hint}")
        self.__dict__.update({name: fields.get(name, value) for name, value in known.items()})
        self.rounds = 0
        if known["style"] == "codellama":
            self._check_capability()

    def _check_capability(self) -> None:
        known = [name for name in lmdeploy.CAPABILITIES if name != "voice"]
        capability = self.__dict__["capability"]
        if capability not in known:
            raise UnknownCapability(
                f"CodeLlama has no capability {short_repr(capability)}",
                hint=f"It has: {', '.join(known)}.",
            )
        if capability == "infilling" and self.__dict__["stop_words"] is None:
            self.stop_words = ["<EOT>"]

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt of one question.

        Args:
            prompt: The question; with the capability "completion" the text to continue.
            sequence_start: False for a later round of a session: no system turn, and the separator before it.
        """
        self.rounds += 1
        return self._render([], sequence_start, prompt=prompt, round=self.rounds)

    def messages2prompt(
        self,
        messages: Messages,
        sequence_start: bool = True,
        tools: list[Any] | None = None,
        **options: Any,
    ) -> str:
        """Return the prompt of a conversation; of a string, that of `get_prompt`.

        Args:
            messages: OpenAI messages, or a string.
            sequence_start: False for a later round of a session: no default system turn.
            tools: Written as they are. LMDeploy's server gives the `function` of each of OpenAI's tools.
            options: Variables of the template, such as `enable_thinking`.

        Raises:
            MessageError: If the messages are not a conversation.
            TemplateError: If the template cannot write them: it may not have a role.

        Example:
            >>> model = MODELS.get("internlm2")(meta_instruction=None)
            >>> model.messages2prompt([{"role": "user", "content": "hi"}])
            '<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\n'
        """
        if isinstance(messages, str):
            return self.get_prompt(messages, sequence_start)
        if isinstance(
            tools, list
        ):  # templates write the function of a tool: here that is the whole tool
            tools = [{"type": "function", "function": tool} for tool in tools]
        return self._render(messages, sequence_start, tools=tools, **options)

    def _render(self, messages: Any, sequence_start: bool, **variables: Any) -> str:
        # The fields are read at every call, since they may have been changed.
        fields = {name: self.__dict__[name] for name in lmdeploy.DEFAULTS}
        fields["sequence_start"] = bool(sequence_start)
        template = _compile_fields(json.dumps(fields, ensure_ascii=False, default=repr))
        return template.render(messages, normalise=False, **variables).text

    @classmethod
    def match(cls, model_path: str) -> str | None:
        """Return the name of this template if LMDeploy's rules choose it for a path."""
        rule = find_template(model_path)
        return rule.template if rule is not None and rule.template in cls.names else None


class BaseChatTemplate(BaseModel):
    """A chat template: a header and an end for each role."""

    own_fields: JsonObject = {}

    def __init__(self, *texts: Any, **fields: Any) -> None:
        super().__init__(**dict(zip(POSITIONS, texts, strict=False)), **fields)


class HFChatTemplate(BaseModel):
    """The template of any model that `turnwise.load` finds, with LMDeploy's calls."""

    def __init__(self, model_path: str = "", **fields: Any) -> None:
        super().__init__(**fields)
        self.template = load(model_path)
        self.stop_words = list(self.template.stops())

    def _render(self, messages: Any, sequence_start: bool, **variables: Any) -> str:
        prompt = variables.pop("prompt", None)
        if prompt is not None:
            messages = [{"role": "user", "content": prompt}]
            variables.pop("round")
        for name in [name for name, value in variables.items() if value is None]:
            del variables[name]
        continues = bool(messages) and messages[-1].get("role") == "assistant"
        variables["continue_final_message" if continues else "add_generation_prompt"] = True
        return self.template.render(messages, normalise=False, **variables).text


@lru_cache(maxsize=512)
def _compile_fields(fields_json: str) -> Template:
    fields = json.loads(fields_json)
    changed = {name: value for name, value in fields.items() if value != lmdeploy.DEFAULTS[name]}
    check_table(changed, lmdeploy.RULES, skip_nulls=True)
    return compile_jinja(write_jinja(fields, exact=True), name="lmdeploy")


# -- templates by name -----------------------------------------------------------------------------------------------


class ChatTemplateRegistry(JsonObject):
    """LMDeploy's `MODELS`: classes of templates by name, with the calls of mmengine's registry."""

    @property
    def module_dict(self) -> JsonObject:
        """The classes by name, as mmengine calls them."""
        return self

    def register_module(
        self,
        name: str | list[str] | None = None,
        force: bool = False,
        module: ModelClass | None = None,
    ) -> Any:
        """Add a class under one name or several; without `module`, return a decorator.

        Raises:
            SourceError: If a name is taken and `force` is not set; also a KeyError.
        """

        def add(added: ModelClass) -> ModelClass:
            for key in [name or added.__name__] if not isinstance(name, list) else name:
                if not force and key in self:
                    raise RegisteredName(
                        f"{short_repr(key)} is already registered",
                        hint="Pass force=True to replace it.",
                    )
                self[key] = added
            return added

        return add if module is None else add(module)


def _make_class(name: str, names: list[str]) -> type[BaseModel]:
    own = lmdeploy.read_data()["entries"][names[0]]
    own_fields = {key: value for key, value in own.items() if key != "model_name"}
    fields = {"own_fields": own_fields, "names": tuple(names), "__module__": __name__}
    return type(name, (BaseChatTemplate,), {**fields, "__doc__": f"LMDeploy's {name}."})


MODELS = ChatTemplateRegistry()
MODELS.register_module(["base", "llama"], module=BaseModel)
CLASSES = {
    name: _make_class(name, names) for name, names in lmdeploy.read_data()["classes"].items()
}
for _class in CLASSES.values():
    MODELS.register_module(list(_class.names), module=_class)
MODELS.register_module("hf", module=HFChatTemplate)


def best_match_model(query: str) -> str | None:
    """Return the name of the template for a model path, by LMDeploy's rules; "base" if there is none.

    Example:
        >>> best_match_model("internlm/internlm2-chat-7b")
        'internlm2'
    """
    for model in dict.fromkeys(MODELS.values()):
        name: str | None = model.match(query)
        if name:
            return name
    warn_caller(
        f"LMDeploy has no chat template for {short_repr(query)}: it takes 'base', which has no turns"
    )
    return "base"


@dataclass
class ChatTemplateConfig:
    """The name of a template, and fields of it that are changed.

    Example:
        >>> config = ChatTemplateConfig("qwen", meta_instruction="Be brief.")
        >>> config.chat_template.get_prompt("hi").startswith("<|im_start|>system\\nBe brief.")
        True
    """

    model_name: str
    system: str | None = None
    meta_instruction: str | None = None
    eosys: str | None = None
    user: str | None = None
    eoh: str | None = None
    assistant: str | None = None
    eoa: str | None = None
    tool: str | None = None
    eotool: str | None = None
    separator: str | None = None
    capability: str | None = None
    stop_words: list[str] | None = None

    @property
    def chat_template(self) -> Any:
        """The template with these fields."""
        fields = drop_nulls(asdict(self))
        name = fields.pop("model_name")
        if name not in MODELS:
            problem = f"LMDeploy has no template {short_repr(name)}: a template of these fields alone is used"
            warn_caller(f"{problem}. {did_you_mean(str(name), MODELS, 'It has')}")
        return (MODELS.get(name) or BaseChatTemplate)(**fields)

    def to_json(self, file_path: str | None = None) -> str:
        """Return the fields as JSON, and write it to a file if one is given."""
        text = json.dumps(asdict(self), ensure_ascii=False, indent=4)
        if file_path:
            Path(file_path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_json(cls, file_or_string: str) -> ChatTemplateConfig:
        """Read a file or a text of JSON; a new name is registered, as in LMDeploy.

        Raises:
            SourceError: If it is neither (also a ValueError), or has other fields than a template.
        """
        fields = object_in(file_or_string)
        if isinstance(fields, str):
            try:
                fields = object_in(Path(fields).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                fields = error
        if not isinstance(fields, dict):
            raise InvalidConfig(
                f"must be the path of a file or JSON, not {short_repr(file_or_string)}",
                hint='For example: {"model_name": "internlm2"}.',
            )
        rules = {name: lmdeploy.RULES[name] for name in cls.__dataclass_fields__}
        fields = check_table(fields, rules, skip_nulls=True)
        name = fields.setdefault("model_name", uuid.uuid4().hex)
        if name not in MODELS:
            MODELS.register_module(name, module=BaseChatTemplate)
        return cls(**fields)


def __getattr__(name: str) -> Any:
    """Return one of LMDeploy's classes by its name."""
    if name in CLASSES:
        return CLASSES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
