"""Everything that asks a template a question, by rendering probe conversations and reading the pieces."""
