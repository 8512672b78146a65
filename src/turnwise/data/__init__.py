"""Data sets of conversations become shards of ids and labels that trainers load as they are."""
