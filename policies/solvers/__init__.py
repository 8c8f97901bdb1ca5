"""The mathematical programs of policies."""
