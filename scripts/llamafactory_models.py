"""Write src/turnwise/registry/llamafactory_models.json from a copy of LLaMA-Factory.

    python scripts/llamafactory_models.py LLaMA-Factory/src/llamafactory/extras/constants.py

The file is parsed, not run. A group of models has one template, which only those get whose name says that they chat, or
all if they see images: the rule of its `register_model_group`. The ids of every hub count; those without a template are
listed under the empty name.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FILE = (
    Path(__file__)
    .resolve()
    .parent.parent.joinpath("src", "turnwise", "registry", "llamafactory_models.json")
)
CHAT_WORDS = ("-Chat", "-Distill", "-Instruct", "-Thinking")


def read_groups(source: str) -> Iterator[tuple[str, str]]:
    """Yield the id of each model with its template; an empty one if it has none."""
    for node in ast.walk(ast.parse(source)):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if not is_call or node.func.id != "register_model_group":
            continue
        arguments = {keyword.arg: keyword.value for keyword in node.keywords}
        template = ast.literal_eval(arguments["template"]) if "template" in arguments else ""
        multimodal = "multimodal" in arguments and ast.literal_eval(arguments["multimodal"])
        for name, paths in zip(arguments["models"].keys, arguments["models"].values, strict=True):
            chats = multimodal or any(word in name.value for word in CHAT_WORDS)
            for path in paths.values:
                yield path.value, template if chats else ""


def main() -> int:
    models: dict[str, list[str]] = defaultdict(list)
    seen: set[str] = set()
    for model, template in read_groups(Path(sys.argv[1]).read_text(encoding="utf-8")):
        if model not in seen:
            seen.add(model)
            models[template].append(model)
    about = "The models of LLaMA-Factory by template; written by scripts/llamafactory_models.py."
    lines = [
        f"{json.dumps(template)}: {json.dumps(sorted(models[template], key=str.lower))}"
        for template in sorted(models)
    ]
    body = ",\n".join(lines)
    FILE.write_text(
        f'{{"about": {json.dumps(about)},\n"models": {{\n{body}\n}}}}\n', encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
