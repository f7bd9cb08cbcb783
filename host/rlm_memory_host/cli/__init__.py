"""The rlm-memory command."""
