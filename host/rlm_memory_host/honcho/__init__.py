"""The memory service Honcho: a narrow client (`client`), what the outbox needs of it (`writer`), keys
(`credentials`), and a fake server (`fake`) that behaves like the real one where that hurts.
"""
