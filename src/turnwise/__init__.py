"""turnwise: any chat template, forwards and backwards, safely, with the evidence shown.

template = turnwise.load("qwen3")              # or compile(text), a file, a folder, a model id
prompt = template.render(messages, add_generation_prompt=True)
message = template.parse(reply, prompt)

Comparing, checking and repairing templates is loaded when it is first used: it is not needed to render, and would take
a third of the time of an import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnwise.engine.provenance.media import MediaPart
from turnwise.engine.provenance.rendering import Origin, Piece, Rendering
from turnwise.engine.runtime.limits import Limits
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
from turnwise.isolation import IsolatedTemplate, WorkerPool, isolated
from turnwise.messages import (
    ChatMessage,
    ContentPart,
    FunctionCall,
    FunctionDefinition,
    Role,
    Tool,
    ToolCall,
)
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.capability_table import Capability
from turnwise.normalisation.change import Change
from turnwise.normalisation.normaliser import Normalised, Normaliser
from turnwise.registry import Entry, Match, entries, load, match, register
from turnwise.replies.call_ids import CallIds
from turnwise.replies.chunk_stream import ChunkStream
from turnwise.replies.events import Event, Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import Parser
from turnwise.template import Template, compile
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.encoded_batch import EncodedBatch
from turnwise.tokens.session import Session
from turnwise.training import Examples

if TYPE_CHECKING:
    from turnwise.evidence import CheckFinding, CheckReport, Comparison, diff
    from turnwise.publishing import Release, release, verify_release
    from turnwise.repair.fix import Patch, Repair, Unfixed, fix

__version__ = "0.1.0"

__all__ = [
    "CallIds",
    "Capabilities",
    "Capability",
    "Change",
    "ChatMessage",
    "CheckFinding",
    "CheckReport",
    "ChunkStream",
    "Comparison",
    "ContentPart",
    "Encoded",
    "EncodedBatch",
    "Entry",
    "Event",
    "Examples",
    "FunctionCall",
    "FunctionDefinition",
    "Grammar",
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
    "Role",
    "Session",
    "SourceError",
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
    "TurnwiseError",
    "TurnwiseWarning",
    "Unfixed",
    "Unstable",
    "WorkerPool",
    "compile",
    "diff",
    "entries",
    "fix",
    "isolated",
    "load",
    "match",
    "register",
    "release",
    "verify_release",
]

_LOADED_WHEN_USED = {
    **dict.fromkeys(("CheckFinding", "CheckReport", "Comparison", "diff"), "turnwise.evidence"),
    **dict.fromkeys(("Patch", "Repair", "Unfixed", "fix"), "turnwise.repair"),
    **dict.fromkeys(("Release", "release", "verify_release"), "turnwise.publishing"),
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_USED:
        raise AttributeError(f"module 'turnwise' has no attribute {name!r}")
    value = getattr(import_module(_LOADED_WHEN_USED[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOADED_WHEN_USED})
