"""`release(folder)`: write what a model folder lacks, each part proved before it is written.

    response_template         in tokenizer_config.json: how transformers, vLLM and SGLang read replies. Proof: written
                              replies are read back equal by transformers' own parser, whole and in chunks.
    training template         a copy of the template with {% generation %} blocks, for trainers. Proof: the same text
                              and the derived mask on nearly all conversations of `fix`, and on plain chats.
    stops                     `eos_token_id` of generation_config.json. Proof: the last trained token of replies and
                              calls is one of them.
    card                      a page that says what the template takes.
    golden                    renderings and parsed replies, which `verify_release` compares.

A part whose proof needs a package that is not installed is reported as not proved, and not written.
What is there stays: a part that differs from what would be written is reported, and written with `overwrite`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jinja2

from turnwise.errors import SourceError, TurnwiseError, WarningLog, printable, short_repr
from turnwise.evidence.checks import CheckReport, check
from turnwise.evidence.prefix_stability import stability
from turnwise.publishing.golden import CHATS, GOLDEN_FILE, make_golden
from turnwise.publishing.model_folder import (
    CONFIG_FILE,
    GENERATION_FILE,
    INDENT,
    ModelFolder,
)
from turnwise.publishing.validators import Verdict, ask_program, ask_validators, read_back
from turnwise.repair import fix
from turnwise.repair.edits import unified_diff
from turnwise.replies.export.response_template import ProfileName
from turnwise.tokens.loss import IGNORED

CARD_FILE = "CHAT_TEMPLATE.md"
TRAINING_FILE = "chat_template_training.jinja"
RESPONSE_KEY, STOPS_KEY = "response_template", "eos_token_id"
INSTALL_TRANSFORMERS = "its parser is the proof: pip install -U transformers"

PartStatus = Literal["missing", "present", "differs", "not possible", "not proved"]


@dataclass(frozen=True, slots=True)
class ReleasePart:
    """One thing that a model folder should have.

    Attributes:
        name: what it is.
        file: the file that holds it.
        status: "missing", "present", "differs" from what would be written, "not possible", or "not proved" here.
        detail: the proof, or the reason.
        text: the file with this part; empty if there is nothing to write.
        before: the file as it is.
    """

    name: str
    file: str
    status: PartStatus
    detail: str = ""
    text: str = ""
    before: str = ""

    @property
    def diff(self) -> str:
        """The change of the file as a unified diff."""
        return unified_diff(self.before, self.text, self.file) if self.text else ""

    def describe(self, is_written: bool = False) -> str:
        """Return the part as a line; one that was missing is new if it has been written."""
        status = "new" if is_written and self.status == "missing" else self.status
        return f"{self.name} ({self.file}): {status}" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return self.describe()


@dataclass(frozen=True)
class Release:
    """The result of `release`.

    Attributes:
        folder: the model folder.
        parts: what it should have, and what of it was missing.
        verdicts: what the programs that read a response_template say about the one of the folder.
        written: the files that were written.
        findings: what `turnwise check` found in the template.

    Example:
        >>> release = turnwise.release("models/mine", dry_run=True)  # doctest: +SKIP
        >>> release.is_complete  # doctest: +SKIP
        True
    """

    folder: Path
    parts: tuple[ReleasePart, ...]
    verdicts: tuple[Verdict, ...] = ()
    written: tuple[str, ...] = ()
    findings: CheckReport | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the folder has everything that is possible, and no program refuses its response_template."""
        is_written = all(
            part.status in ("present", "not possible") or part.file in self.written
            for part in self.parts
        )
        return is_written and all(verdict.accepted is not False for verdict in self.verdicts)

    @property
    def diff(self) -> str:
        """What is missing, or differs, as unified diffs."""
        return "".join(part.diff for part in self.parts)

    def __str__(self) -> str:
        parts = [part.describe(part.file in self.written) for part in self.parts]
        lines = [*self._describe_findings(), *parts, *map(str, self.verdicts)]
        return "\n".join([*lines, *(f"written: {name}" for name in self.written)])

    def _describe_findings(self) -> Iterator[str]:
        """Yield what `turnwise check` found: the errors, and how many other findings there are."""
        if self.findings is None:
            return
        yield f"check: {self.findings.summary()}"
        for finding in self.findings:
            if finding.severity == "error":
                line = f" (line {finding.place.line})" if finding.place is not None else ""
                yield f"  {finding.code} {printable(finding.message)}{line}"


def release(
    folder: str | Path,
    *,
    dry_run: bool = False,
    overwrite: bool = False,
    profile: ProfileName = "serving",
) -> Release:
    """Write what a model folder lacks for serving and training, each part proved.

    Args:
        folder: a folder with a chat template and a tokenizer.
        dry_run: write nothing; `diff` shows what would be.
        overwrite: also write what is there and differs.
        profile: for whom the response_template is: "serving" for transformers, vLLM and SGLang, or "transformers"
            alone, whose field of the reasoning is `reasoning_content`.

    Raises:
        SourceError: the folder has no template or no tokenizer, a file of it is broken, or it cannot be written.

    Example:
        >>> print(turnwise.release("models/mine", dry_run=True))  # doctest: +SKIP
    """
    if not isinstance(folder, str | Path):
        raise SourceError(f"a release is made of a model folder, not of {short_repr(folder)}")
    model = ModelFolder(Path(folder))
    with WarningLog(is_quiet=True):  # samples have texts that a template cannot write whole
        findings = check(model.template, model.tokenizer)
        parts = _make_parts(model, profile, overwrite)
    written = []
    for part in parts:
        is_wanted = part.status == "missing" or (overwrite and part.status == "differs")
        if is_wanted and not dry_run:
            model.write(part.file, part.text)
            written.append(part.file)
    config = model.read_table(CONFIG_FILE) or {}
    current = config.get(RESPONSE_KEY)
    verdicts = ask_validators(current) if isinstance(current, Mapping) else []
    return Release(model.path, tuple(parts), tuple(verdicts), tuple(written), findings)


def _make_parts(model: ModelFolder, profile: ProfileName, overwrite: bool) -> list[ReleasePart]:
    """Return all parts. The stops come first: they are a part of how the template is loaded."""
    stops = _make_stops(model)
    if stops.status == "missing" or (overwrite and stops.status == "differs"):
        model.use_stops(json.loads(stops.text)[STOPS_KEY])
    golden = json.dumps(make_golden(model), indent=INDENT, ensure_ascii=False) + "\n"
    return [
        stops,
        _make_response_template(model, profile),
        _make_training_template(model),
        _compare(model, "card", CARD_FILE, write_card(model), ""),
        _compare(model, "golden", GOLDEN_FILE, golden, ""),
    ]


def _make_response_template(model: ModelFolder, profile: ProfileName) -> ReleasePart:
    name = "response template"
    current = (model.config or {}).get(RESPONSE_KEY)
    try:
        wanted = model.template.grammar.to_response_template(profile=profile, partly=True)
    except TurnwiseError as error:
        status: PartStatus = "not possible" if current is None else "present"
        return ReleasePart(name, CONFIG_FILE, status, error.message)
    if current == wanted:
        return ReleasePart(name, CONFIG_FILE, "present")
    verdicts = [ask_program("transformers", wanted), read_back(model.template, wanted)]
    refused = [verdict for verdict in verdicts if verdict.accepted is False]
    if refused:
        return ReleasePart(name, CONFIG_FILE, "not possible", str(refused[0]))
    if any(verdict.accepted is None for verdict in verdicts):
        reason = f"{INSTALL_TRANSFORMERS} ({verdicts[0].detail or verdicts[1].detail})"
        return ReleasePart(name, CONFIG_FILE, "not proved", reason)
    text = model.set_key(CONFIG_FILE, RESPONSE_KEY, wanted)
    return _propose(model, name, CONFIG_FILE, current is None, "; ".join(map(str, verdicts)), text)


def _make_training_template(model: ModelFolder) -> ReleasePart:
    name = "training template"
    try:
        repair = fix(model.template, ["generation"])
    except TurnwiseError as error:
        return ReleasePart(name, TRAINING_FILE, "not possible", error.message)
    if repair.unfixed:
        reason = "; ".join(unfixed.reason for unfixed in repair.unfixed)
        return ReleasePart(name, TRAINING_FILE, "not possible", reason)
    if not repair.changed:
        return ReleasePart(name, TRAINING_FILE, "present", "the template itself has the blocks")
    proof = f"the same text; {repair.patches[0].what} conversations"
    return _compare(model, name, TRAINING_FILE, repair.text, "; ".join([proof, *repair.notes]))


def _make_stops(model: ModelFolder) -> ReleasePart:
    name, stops = "stops", model.template.stops(model.tokenizer)
    ids = list(dict.fromkeys(stops.ids))
    if not ids:
        return ReleasePart(name, GENERATION_FILE, "not possible", "no stop is one token")
    unproved = list(_find_open_ends(model, ids))
    if unproved:
        return ReleasePart(name, GENERATION_FILE, "not possible", unproved[0])
    current = (model.generation or {}).get(STOPS_KEY)
    listed = current if isinstance(current, list) else [current]
    if set(ids) <= set(listed):
        return ReleasePart(name, GENERATION_FILE, "present")
    lacking = ", ".join(stop for stop in stops if model.tokenizer.id(stop) not in listed)
    wanted = [*(id for id in listed if isinstance(id, int) and id not in ids), *ids]
    proof = f"{lacking}; the last trained token of every reply is a stop"
    text = model.set_key(GENERATION_FILE, STOPS_KEY, wanted)
    return _propose(model, name, GENERATION_FILE, current is None, proof, text)


def _find_open_ends(model: ModelFolder, ids: list[int]) -> Iterator[str]:
    """Yield the conversations whose last trained token is no stop."""
    for chat in CHATS:
        if chat.add_generation_prompt:
            continue
        try:
            encoded = model.template.encode(chat.messages, model.tokenizer, tools=chat.tools)
        except TurnwiseError:
            continue  # the template does not take such conversations
        trained = [label for label in encoded.labels if label != IGNORED]
        if trained and trained[-1] not in ids:
            yield f"in {chat.covers!r} the last trained token is {trained[-1]}, which is no stop"


def _compare(model: ModelFolder, name: str, file: str, text: str, proof: str) -> ReleasePart:
    """Return a part that is a file of its own."""
    before = model.read_text(file)
    if before == text:
        return ReleasePart(name, file, "present")
    return _propose(model, name, file, before is None, proof, text)


def _propose(
    model: ModelFolder, name: str, file: str, is_missing: bool, proof: str, text: str
) -> ReleasePart:
    """Return a part that is to be written, with the file before and after."""
    status: PartStatus = "missing" if is_missing else "differs"
    return ReleasePart(name, file, status, proof, text, model.read_text(file) or "")


def write_card(folder: ModelFolder) -> str:
    """Return the card as Markdown; everything in it was measured on the template."""
    page = Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8")
    stops = folder.template.stops(folder.tokenizer)
    card = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True).from_string(page)
    return card.render(
        template=folder.template,
        stops={stop: folder.tokenizer.id(stop) for stop in stops},
        stability=stability(folder.template),
        golden=GOLDEN_FILE,
    )
