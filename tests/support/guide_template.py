"""The example template of a guide to chat templates, and the question that the guide asks with it."""

from __future__ import annotations

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
