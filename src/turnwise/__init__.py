"""turnwise: any chat template, forwards and backwards, safely, with the evidence shown.

template = turnwise.load("qwen3")              # or compile(text), a file, a folder, a model id
prompt = template.render(messages, add_generation_prompt=True)
message = template.parse(reply, prompt)

Each name is loaded when it is first used: a program that only renders does not wait for the modules that compare,
check and repair, and `turnwise --help` for none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnwise.errors import (
    MessageError,
    SourceError,
    TemplateError,
    TemplateLimitError,
    TemplateRaised,
    TemplateRuntimeError,
    TemplateSecurityError,
    TemplateSyntaxError,
    TokenizerError,
    TurnwiseError,
    TurnwiseWarning,
    Unstable,
)

if TYPE_CHECKING:
    from turnwise.engine.provenance.media import MediaPart
    from turnwise.engine.provenance.rendering import Origin, Piece, Rendering
    from turnwise.engine.runtime.limits import Limits
    from turnwise.evidence import (
        CheckFinding,
        CheckReport,
        Comparison,
        Stability,
        check,
        diff,
        stability,
    )
    from turnwise.evidence.conform import Conformance, conform
    from turnwise.isolation import IsolatedTemplate, WorkerPool, isolated
    from turnwise.messages.types import (
        AssistantMessage,
        Change,
        ChatMessage,
        ContentPart,
        FunctionCall,
        FunctionDefinition,
        ReplyToolCall,
        Role,
        SystemMessage,
        Tool,
        ToolCall,
        ToolMessage,
        UserMessage,
    )
    from turnwise.normalisation.capabilities import Capabilities, Capability
    from turnwise.normalisation.normaliser import Normalised, Normaliser
    from turnwise.publishing import Release, release, verify_release
    from turnwise.registry import Entry, Match, load, register
    from turnwise.registry.match import match
    from turnwise.registry.store import entries
    from turnwise.repair.fix import Patch, Repair, Unfixed, fix
    from turnwise.replies.call_ids import CallIds
    from turnwise.replies.chunk_stream import ChunkStream
    from turnwise.replies.events import Event, Message
    from turnwise.replies.grammar import Grammar
    from turnwise.replies.parser.parser import Parser
    from turnwise.template import Template, compile
    from turnwise.tokens.encoded import Encoded
    from turnwise.tokens.encoded_batch import EncodedBatch
    from turnwise.tokens.growing import GrowingPrompt
    from turnwise.tokens.session import Session
    from turnwise.training import Examples

__version__ = "0.1.0"

__all__ = [
    "AssistantMessage",
    "CallIds",
    "Capabilities",
    "Capability",
    "Change",
    "ChatMessage",
    "CheckFinding",
    "CheckReport",
    "ChunkStream",
    "Comparison",
    "Conformance",
    "ContentPart",
    "Encoded",
    "EncodedBatch",
    "Entry",
    "Event",
    "Examples",
    "FunctionCall",
    "FunctionDefinition",
    "Grammar",
    "GrowingPrompt",
    "IsolatedTemplate",
    "Limits",
    "Match",
    "MediaPart",
    "Message",
    "MessageError",
    "Normalised",
    "Normaliser",
    "Origin",
    "Parser",
    "Patch",
    "Piece",
    "Release",
    "Rendering",
    "Repair",
    "ReplyToolCall",
    "Role",
    "Session",
    "SourceError",
    "Stability",
    "SystemMessage",
    "Template",
    "TemplateError",
    "TemplateLimitError",
    "TemplateRaised",
    "TemplateRuntimeError",
    "TemplateSecurityError",
    "TemplateSyntaxError",
    "TokenizerError",
    "Tool",
    "ToolCall",
    "ToolMessage",
    "TurnwiseError",
    "TurnwiseWarning",
    "Unfixed",
    "Unstable",
    "UserMessage",
    "WorkerPool",
    "check",
    "compile",
    "conform",
    "diff",
    "entries",
    "fix",
    "isolated",
    "load",
    "match",
    "register",
    "release",
    "stability",
    "verify_release",
]

_NAMES_BY_MODULE = {
    "turnwise.engine.provenance.media": "MediaPart",
    "turnwise.engine.provenance.rendering": "Origin Piece Rendering",
    "turnwise.engine.runtime.limits": "Limits",
    "turnwise.evidence": "CheckFinding CheckReport Comparison Stability check diff stability",
    "turnwise.evidence.conform": "Conformance conform",
    "turnwise.isolation": "IsolatedTemplate WorkerPool isolated",
    "turnwise.messages.types": (
        "AssistantMessage Change ChatMessage ContentPart FunctionCall FunctionDefinition "
        "ReplyToolCall Role SystemMessage Tool ToolCall ToolMessage UserMessage"
    ),
    "turnwise.normalisation.capabilities": "Capabilities Capability",
    "turnwise.normalisation.normaliser": "Normalised Normaliser",
    "turnwise.publishing": "Release release verify_release",
    "turnwise.registry": "Entry Match load register",
    "turnwise.registry.match": "match",
    "turnwise.registry.store": "entries",
    "turnwise.repair.fix": "Patch Repair Unfixed fix",
    "turnwise.replies.call_ids": "CallIds",
    "turnwise.replies.chunk_stream": "ChunkStream",
    "turnwise.replies.events": "Event Message",
    "turnwise.replies.grammar": "Grammar",
    "turnwise.replies.parser.parser": "Parser",
    "turnwise.template": "Template compile",
    "turnwise.tokens.encoded": "Encoded",
    "turnwise.tokens.encoded_batch": "EncodedBatch",
    "turnwise.tokens.growing": "GrowingPrompt",
    "turnwise.tokens.session": "Session",
    "turnwise.training": "Examples",
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    try:
        if name in _MODULES:
            return globals().setdefault(name, getattr(import_module(_MODULES[name]), name))
        if not name.startswith("_"):
            # `turnwise.shapes`, without an import of its own.
            return import_module(f"turnwise.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"turnwise.{name}":
            raise
    raise AttributeError(f"module 'turnwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
