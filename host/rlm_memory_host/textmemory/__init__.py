"""Text memory: what a person or a model asks to keep, reviewable, under gates. Services over `storage`."""
