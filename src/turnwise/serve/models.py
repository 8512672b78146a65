"""The models of one server: each a template, a tokenizer and a name, loaded and warmed up before the first request.

A model is given as `PLACE` or `NAME=PLACE`. The place is what `turnwise.load` takes: a model folder, a file, an entry,
the id of a model in the local Hugging Face cache. Its tokenizer is that of the folder; an entry or a file has none, so
it gets the one of `--tokenizer`, or the small one that ships with turnwise. Names are looked up in a table, and never
joined to a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.analysis.request_facts import REASONING, RequestFacts
from turnwise.compat.tokenizer_shim import TokenizerShim
from turnwise.errors import SourceError, TurnwiseError, did_you_mean, short_repr
from turnwise.local_files import is_present, read_table
from turnwise.registry import entries, load
from turnwise.replies.parser.parser import Parser
from turnwise.serve.bodies import NOT_FOUND, RequestBody, RequestError
from turnwise.template import Template
from turnwise.tokens.stop_ids import Stops
from turnwise.tokens.tokenizers import SHIPPED, files, tokenizer
from turnwise.tokens.tokenizers.protocol import Tokenizer

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@:-]{0,127}")
LENGTH_KEYS = (
    ("config.json", "max_position_embeddings"),
    ("tokenizer_config.json", "model_max_length"),
)
MAX_CONFIG = 64 << 20
NO_LENGTH = 10**9  # transformers writes 1e30 where there is no limit
SAMPLE = "Hi"
GREETING = [{"role": "user", "content": "Hi"}]


@dataclass(frozen=True)
class ServedModel:
    """One model that is served.

    Attributes:
        name: what requests call it.
        template: its chat template.
        tokenizer: its tokenizer.
        template_place: what `load` was given, for worker processes.
        tokenizer_place: what the tokenizer was loaded from, for worker processes.
        max_length: the most tokens of prompt and reply together; None if that is not known.
        reply_policy: what becomes of what is doubtful in a reply, as arguments of `Template.parser`.
    """

    name: str
    template: Template
    tokenizer: Tokenizer
    template_place: str
    tokenizer_place: str
    max_length: int | None = None
    reply_policy: Mapping[str, Any] = field(default_factory=dict)

    def make_parser(self, prompt: Any, tools: Any, may_call: bool) -> Parser:
        """Return a parser of a reply to a prompt."""
        declared = None if may_call else {"without": ["calls"]}
        return self.template.parser(
            prompt, tools, self.tokenizer, declared, strip="calls", **self.reply_policy
        )

    @property
    def has_shipped_tokenizer(self) -> bool:
        """Whether the tokenizer is the one of turnwise, which no model has."""
        return self.tokenizer_place == SHIPPED

    @cached_property
    def problems(self) -> frozenset[str]:
        """Warnings about the template with this tokenizer, which no request is to blame for."""
        return self._name_problems(self.template.markers(self.tokenizer).problems)

    @cached_property
    def _facts(self) -> RequestFacts:
        return RequestFacts(self.template.codec.renderer)

    def describe_effort(self, body: RequestBody) -> frozenset[str]:
        """Return the warnings about a level of reasoning that a request asks for and the template does not have."""
        options = getattr(body, "chat_template_kwargs", {})
        effort = options.get(REASONING) or getattr(body, "reasoning_effort", None)
        return self._name_problems(self._facts.translate({REASONING: effort}).problems)

    def _name_problems(self, problems: Iterable[str]) -> frozenset[str]:
        return frozenset(f"{self.template.name}: {problem}" for problem in problems)

    @cached_property
    def stops(self) -> Stops:
        """The texts that end a reply, and their ids."""
        return self.template.stops(self.tokenizer)

    @cached_property
    def tokens_around(self) -> tuple[list[int], list[int]]:
        """The special tokens that the tokenizer's file adds before and behind a plain prompt.

        Raises:
            TokenizerError: the tokenizer does not tell.
        """
        place = files.SHIPPED if self.has_shipped_tokenizer else self.tokenizer_place
        shim = TokenizerShim(self.tokenizer, place)
        alone, ids = shim.encode(SAMPLE), shim.encode(SAMPLE, add_special_tokens=True)
        more = len(ids) - len(alone)
        before = next(start for start in range(more + 1) if ids[start:][: len(alone)] == alone)
        return ids[:before], ids[before + len(alone) :]

    def warm_up(self) -> None:
        """Do what the first requests would do: load what encodes fast, probe the template, compile its parser."""
        load_fast_backend = getattr(self.tokenizer, "load_fast_backend", None)
        if load_fast_backend is not None:  # not every library has one
            load_fast_backend()
        try:
            encoded = self.template.encode(GREETING, self.tokenizer, add_generation_prompt=True)
        except TurnwiseError:
            return  # it needs more than a greeting, such as variables that requests set
        parser = self.template.parser(encoded, tokenizer=self.tokenizer)
        parser.feed(self.tokenizer.encode("Hi"))
        parser.close()
        _ = self.stops


class ServedModels:
    """The models of a server by their names; a request without a model means the first."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        if not models:
            raise SourceError("a server needs a model", hint="name an entry or a model folder")
        self._models = {model.name: model for model in models}
        if len(self._models) < len(models):
            raise SourceError("two models have the same name", hint="name them: NAME=PLACE")

    def __iter__(self) -> Any:
        return iter(self._models.values())

    def find(self, name: str | None) -> ServedModel:
        """Return a model by its name.

        Raises:
            RequestError: it is not served here.
        """
        if name is None:
            return next(iter(self._models.values()))
        model = self._models.get(name)
        if model is None:
            raise RequestError(
                f"the model {short_repr(name)} is not served here",
                path="model",
                hint=did_you_mean(name, self._models, "Served"),
                status=NOT_FOUND,
            )
        return model

    @cached_property
    def resources(self) -> dict[str, dict[str, str]]:
        """The files that calls of the playground may open."""
        models = self._models.values()
        return {
            "templates": {model.name: model.template_place for model in models},
            "tokenizers": {model.name: model.tokenizer_place for model in models},
        }


def load_model(
    given: str, tokenizer_place: str | None = None, max_length: int | None = None
) -> ServedModel:
    """Load a model of the command line: `PLACE` or `NAME=PLACE`.

    Raises:
        SourceError: there is no such template, or the name is none that a request could have.
    """
    name, equals, place = given.partition("=")
    if not equals or not MODEL_NAME.fullmatch(name):
        name, place = "", given
    template = load(place)
    folder = Path(place)
    is_entry = place in entries()
    name = name or (place if is_entry or not folder.exists() else folder.resolve().name)
    if not MODEL_NAME.fullmatch(name):
        raise SourceError(
            f"{short_repr(name)} cannot be the name of a model",
            hint="name it: NAME=PLACE, of letters, digits and ._/@:-",
        )
    is_alone = is_entry or folder.is_file()  # a template without its tokenizer
    where = tokenizer_place or (SHIPPED if is_alone else place)
    try:
        known = tokenizer(where)
    except TurnwiseError as error:
        raise SourceError(
            f"{place} has no tokenizer: {error.message}", hint="give one with --tokenizer"
        ) from error
    if max_length is None and not is_entry and folder.is_dir():
        max_length = _read_length(folder)
    return ServedModel(name, template, known, place, where, max_length)


def _read_length(folder: Path) -> int | None:
    for file, key in LENGTH_KEYS:
        path = folder / file
        if not is_present(path):
            continue
        try:
            length = read_table(path, MAX_CONFIG).get(key)
        except (OSError, ValueError):
            continue  # what cannot be read tells nothing
        if isinstance(length, int) and 0 < length < NO_LENGTH:
            return length
    return None
