"""Experiment cards on their way to a memory service: what of them leaves (`projection`, `exclusions`), what the card
says of it (`marking`), and who sends them, once each (`indexer`).
"""
