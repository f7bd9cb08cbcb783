"""The kernel side of rlm-memory."""
