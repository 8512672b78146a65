"""Pieces become ids: tokenizers, trust, encoding, loss, sessions."""
