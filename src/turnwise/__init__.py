"""turnwise: any chat template, forwards and backwards, safely, with the evidence shown."""

from turnwise.engine.provenance.rendering import Origin, Piece, Rendering
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
from turnwise.evidence import Comparison, diff
from turnwise.registry import Match, entries, load, match, register
from turnwise.template import Template, compile

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Match",
    "MessageError",
    "Origin",
    "Piece",
    "Rendering",
    "SourceError",
    "Template",
    "TemplateError",
    "TemplateLimitError",
    "TemplateRaised",
    "TemplateRuntimeError",
    "TemplateSecurityError",
    "TemplateSyntaxError",
    "TurnwiseError",
    "Unstable",
    "TurnwiseWarning",
    "TokenizerError",
    "compile",
    "diff",
    "entries",
    "load",
    "match",
    "register",
]
