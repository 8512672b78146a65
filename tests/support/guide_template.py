"""The example template of a guide to chat templates, and the question that the guide asks with it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
import pytest
import corpus
import oracle
import turnwise
from cli_runner import good
from corpus import needs_corpus
from turnwise.analysis.conversations import Probe
from turnwise.analysis.counterexample import find_counterexample
from turnwise.compat import fastchat, paddlenlp, xtuner


MARKED = """\
{% for message in messages %}
<message>{{ message.role }}
{{ message.content }}
</message>
{% endfor %}
{% if add_generation_prompt %}
<message>assistant
{% endif %}"""

ASKED = [{"role": "user", "content": "为我介绍一下大语言模型"}]
