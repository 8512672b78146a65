"""The calls that people's code already makes, under the names of the software it makes them to.

Each module here has one system's names, arguments and results, and renders with turnwise. Where that system has a
recorded defect, the better behaviour is the default and a switch named in the module gives the original's.
"""

from turnwise.errors import MessageError


class MissingKey(MessageError, KeyError):
    """Something that data must have and has not; the original looks it up, and its KeyError may be waited for."""
