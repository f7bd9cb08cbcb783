"""Files, locks, objects, cards and the search index on disk. Synchronous; called through worker threads."""
