"""Recall: find, rank, fuse and render what the stores hold, within a budget. Reads only."""
