"""A reply becomes a message: the grammar derived from a template, one streaming parser for all, and its inverse."""
