"""Find templates by name, path, model id or tokenizer: `load("qwen2.5")`, `load("models/mine")`, `load(tokenizer)`.

`resolver` describes in which order a text is looked up, `match` which model has which entry. Entries are data files in
`entries/`; `store` describes how users add their own.
"""

from __future__ import annotations

import os
from warnings import warn

from turnwise.errors import TurnwiseWarning
from turnwise.registry.entry import Entry
from turnwise.registry.files import HasChatTemplate, TemplateSource
from turnwise.registry.match import Match, match
from turnwise.registry.resolver import compile_source, find_folder, find_source
from turnwise.registry.store import entries, register, unregister
from turnwise.template import Template

__all__ = [
    "Entry",
    "HasChatTemplate",
    "Match",
    "TemplateSource",
    "compile_source",
    "entries",
    "load",
    "match",
    "find_folder",
    "find_source",
    "register",
    "unregister",
]


def load(
    where: str | os.PathLike[str] | HasChatTemplate,
    *,
    pick: str | None = None,
    exact: bool = False,
    revision: str | None = None,
    download: bool = False,
) -> Template:
    """Load a template.

    Args:
        where: The name of an entry, a file, a model folder, the id of a model, a name of Ollama ("llama3.1:8b"), or a
            tokenizer object of transformers. A text is looked up in this order: the name of an entry, a path that
            exists, the model in the local Hugging Face cache, what `match` answers.
        pick: The name of one template, if there are several.
        exact: For formats of other software: write the same text as that software, with its known defects.
        revision: Of a model id, the branch, tag or commit; "org/model@revision" says the same.
        download: Fetch the template and the tokenizer of a model id from the Hugging Face hub, with huggingface_hub
            (the extra `hub`), into its cache. Otherwise nothing is looked up on a network.

    Returns:
        The compiled template; the special tokens of the files or the tokenizer are its default options.

    Warns:
        TurnwiseWarning: If the template of a cached model differs from the entry for that model, a file was ignored
            for another, the model is a base model, or the format is one of other software.

    Raises:
        SourceError: If there is no template in `where`; or a file of a folder is a link out of that folder, a pipe
            or a device, or too large.
        TemplateSyntaxError: If the template cannot be compiled.

    Example:
        >>> import turnwise
        >>> template = turnwise.load("qwen2.5")
        >>> str(template.render([{"role": "user", "content": "hi"}])).endswith("hi<|im_end|>\\n")
        True
    """
    found = find_source(where, pick=pick, exact=exact, revision=revision, download=download)
    if found.warning:
        warn(found.warning, TurnwiseWarning, stacklevel=2)
    return compile_source(found)
