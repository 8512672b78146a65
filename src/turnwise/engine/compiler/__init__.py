"""A template becomes a Python function: jinja2's syntax tree is translated to Python source."""
