"""Translations of a grammar into the formats of other software, one module per format."""
