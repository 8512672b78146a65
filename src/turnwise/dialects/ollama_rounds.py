"""What Ollama does to a conversation before a template sees it, and the cut of the last round.

Consecutive messages of one role are joined first, tool results excepted. A template that mentions
`.Messages` sees all of them, and `.System` is all system texts. An older one sees one round,
`.System`, `.Prompt` and `.Response`, and is executed once per round. The last round is executed with
a copy of the template from which everything behind `.Response` was cut, which is how the generation
prompt comes about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from turnwise.dialects.ollama_go import GoNode, GoTemplate, GoTerm, refuse, walk_nodes, walk_terms

COLLECT_MESSAGES = """\
{%- set ns = namespace(chat=[], systems=[], system='', prompt='', response='') -%}
{%- for message in given -%}
{%- set content = message.content or '' -%}
{%- set role = ROLE -%}
{%- if role == 'system' -%}
{%- set ns.systems = ns.systems + [content] -%}
{%- endif -%}
{%- set joins = ns.chat and ns.chat[-1].role == role and role != 'tool' -%}
{%- set other = ns.chat[-1] if joins else message -%}
{%- set one = {'role': role, 'content': (ns.chat[-1].content ~ '\\n\\n' if joins else '') ~ content, \
'reasoning_content': other.reasoning_content or '', 'tool_calls': other.tool_calls or [], \
'name': other.tool_name or other.name or '', 'tool_call_id': other.tool_call_id or '', \
'images': other.images | default(none)} -%}
{%- set ns.chat = (ns.chat[:-1] if joins else ns.chat) + [one] -%}
{%- endfor -%}"""
ROLE = "message.role"
EXACT_ROLE = "message.role | lower"  # Ollama reads roles so
USE_MESSAGES = """\
{%- set chat = ns.chat -%}
{%- set system = ns.systems | join('\\n\\n') -%}"""
USE_SUFFIX = """\
{%- set users = given | selectattr('role', 'equalto', 'user') | map(attribute='content') | list -%}
{%- set prompt = users | last if suffix and users else none -%}
{%- if prompt -%}
{%- set chat = [] -%}
{%- set system = none -%}
{%- endif -%}"""
"""With a suffix the text between prompt and suffix is asked for, and there is no conversation."""

USE_ROUNDS = """\
{%- for message in ns.chat -%}
{%- set full = ns.prompt or ns.response if message.role == 'system' else ns.response -%}
{%- if full and message.role in ['system', 'user'] -%}
{{- round() -}}
{%- set ns.system = '' -%}
{%- set ns.prompt = '' -%}
{%- set ns.response = '' -%}
{%- endif -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content -%}
{%- elif message.role == 'user' -%}
{%- set ns.prompt = message.content -%}
{%- elif message.role == 'assistant' -%}
{%- set ns.response = message.content -%}
{%- endif -%}
{%- endfor -%}"""
THINK_LEVELS = "['high', 'medium', 'low', 'max']"
USE_THINKING = """\
{%- set think_is_set = enable_thinking is defined and enable_thinking is not none -%}
{%- set think = enable_thinking if think_is_set else false -%}
{%- set think_level = 'medium' if think else '' -%}"""
USE_THINK_LEVEL = f"""\
{{%- set has_level = reasoning_effort is defined and reasoning_effort in {THINK_LEVELS} -%}}
{{%- set think_is_set = has_level or (enable_thinking is defined and enable_thinking is not none) -%}}
{{%- set think = enable_thinking if enable_thinking is defined and enable_thinking is not none else has_level -%}}
{{%- set think_level = (reasoning_effort if has_level else 'medium') if think else '' -%}}"""


def list_names(template: GoTemplate, exact: bool) -> set[str]:
    """Return the names of all fields of the dot and of variables, in small letters as Ollama asks.

    Ollama does not look into `(index .Messages 0).Content`, and takes a template that has nothing else
    for one of the older kind; only the exact reading does so, too.
    """
    names: set[str] = set()
    for nodes in (template.nodes, *template.defined.values()):
        for node in walk_nodes(nodes):
            for term in walk_terms(node.term, into_chains=not exact):
                if term.kind != "call":
                    names.update(name.lower() for name in term.path)
    return names


class ResponseCut:
    """Cuts what follows the first `.Response` of a template, as Ollama does.

    Args:
        exact: refuse a template with which Ollama itself fails.
    """

    def __init__(self, exact: bool) -> None:
        self._exact = exact
        self._is_cut = False

    def cut(self, nodes: tuple[GoNode, ...]) -> tuple[GoNode, ...]:
        """Return the nodes up to `.Response`, and the blocks around it."""
        return tuple(self._cut_nodes(nodes))

    def _cut_nodes(self, nodes: tuple[GoNode, ...]) -> Iterator[GoNode]:
        for node in nodes:
            if self._is_cut:
                return
            if node.kind in ("print", "set") and node.term is not None:
                term = self._cut_term(node.term)
                if term is not None:
                    yield replace(node, term=term)
            elif node.body or node.otherwise:
                yield self._cut_block(node)
            else:
                yield node

    def _cut_block(self, node: GoNode) -> GoNode:
        """Cut inside of a block; what the block asks is left alone."""
        body = self.cut(node.body)
        if not self._is_cut or not node.otherwise:
            return replace(node, body=body, otherwise=self.cut(node.otherwise))
        if self._exact:
            hint = "Without exact=True the template is read as it was meant."
            refuse(node.line, "Ollama fails with an else behind .Response", hint)
        return replace(node, body=body)

    def _cut_term(self, term: GoTerm) -> GoTerm | None:
        """Return a term without the arguments behind `.Response`; None if its function is behind it."""
        if _is_response(term):
            self._is_cut = True
        if term.kind != "call" or term.is_chain or not term.arguments:
            return term
        arguments = term.arguments
        if term.is_piped:
            piped = self._cut_term(arguments[-1])
            return None if self._is_cut or piped is None else term
        kept = []
        for argument in arguments:
            if self._is_cut and not _is_response(argument):
                continue
            inner = self._cut_term(argument)
            if inner is not None:
                kept.append(inner)
        if not kept and not term.name:
            return None
        return replace(term, arguments=tuple(kept))


def _is_response(term: GoTerm) -> bool:
    return term.kind == "dot" and "Response" in term.path
