"""Profiles: what users of a template send, and how much harm it does if the template does not write it.

A *profile* is a set of audiences: those whose clients send a form (`Form.sent_by`). Without a profile, the template
itself shows who uses it: one that writes tools is used by agents, one that writes images by clients that send images.

The severity of a finding is its harm:

    error      text is lost or wrong, or the request fails
    warning    the same, where no profile says that it is sent: in a form beside the plain ones
    note       a refusal that the template states, a cost, or style

Without a profile, nothing is reported of a form that servers bring into its plain form anyway (`Form.converted`),
unless the template has code for that form.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, get_args

from turnwise.analysis.form_table import HAS_WORDS, FormRow, FormTable
from turnwise.analysis.forms import Audience
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.errors import SourceError
from turnwise.schema import check_name

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

PROFILES: Mapping[str, frozenset[Audience]] = {
    "chat": frozenset(["chat"]),
    "tools": frozenset(["chat", "tools"]),
    "agents": frozenset(["chat", "tools", "agents"]),
    "vision": frozenset(["chat", "vision"]),
    "training": frozenset(["chat", "tools", "training"]),
    "all": frozenset(get_args(Audience)),
}
TOOL_FORMS = ("tools", "call without text")
IMAGE_FORMS = ("image", "image_url")
PARTS = "content-parts"


class Profile:
    """Grades what a template does with forms of input.

    Args:
        forms: the table of forms of the template.
        name: one of `PROFILES`; None for what the template itself shows.

    Raises:
        SourceError: there is no such profile.
    """

    def __init__(self, forms: FormTable, name: str | None) -> None:
        if name is not None:
            check_name(name, PROFILES, "there is no profile", "Profiles", SourceError)
        self._forms = forms
        self.name = name

    def _writes(self, *names: str) -> bool:
        rows = map(self._forms.find, names)
        return any(row is not None and row.verdict in HAS_WORDS for row in rows)

    @cached_property
    def audiences(self) -> frozenset[Audience]:
        """Whose forms matter."""
        if self.name is not None:
            return PROFILES[self.name]
        found: set[Audience] = {"chat", "training"}
        if self._writes(*TOOL_FORMS):
            found |= {"tools", "agents"}
        if self._writes(*IMAGE_FORMS):
            found.add("vision")
        return frozenset(found)

    def describe(self) -> str:
        """Return what the template is for, in a few words."""
        kinds = {"tools": TOOL_FORMS, "reasoning": ("reasoning",), "images": IMAGE_FORMS}
        found = [kind for kind, forms in kinds.items() if self._writes(*forms)]
        if not self._writes("system"):
            found.append("no system message")
        kind = "text and " + ", ".join(found) if found else "text only"
        return kind.replace("text and no", "text only, no")

    def grade(self, row: FormRow) -> Severity | None:
        """Return how much harm a defect does; None if this profile does not send its form."""
        form = row.form
        if form.sent_by not in self.audiences:
            return None
        is_refused = row.verdict == "refused"
        if self.name is not None:
            return "warning" if is_refused and (row.is_stated or form.converted) else "error"
        if form.converted and not (form.check == PARTS and self._reads_parts):
            return None
        if is_refused and row.is_stated:
            if form.check == "two-users" and "tools" not in self.audiences:
                return None  # strict turns are how such a model was trained
            return "warning" if form.name == "system" else "note"
        is_plain = form.sent_by == "chat" and not form.converted
        return "error" if is_plain else "warning"

    @cached_property
    def _reads_parts(self) -> bool:
        """Whether the template has code for parts: it reads their fields."""
        return any(
            "type" in found.children.get("content", ())
            for found in map(TemplateConstants.read, self._forms.texts)
        )
