"""The streaming parser of replies: `Parser.feed` for chunks, `Parser.read` for a whole reply.

How the parsers of one reply work together is drawn at the top of `state.py`.
"""

from turnwise.replies.parser.compiled_grammar import ALL_TOLERANCES, TOLERANCES
from turnwise.replies.parser.parser import Parser

__all__ = ["ALL_TOLERANCES", "TOLERANCES", "Parser"]
