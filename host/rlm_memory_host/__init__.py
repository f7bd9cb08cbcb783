"""The host side of rlm-memory."""
