"""The guard: what may not be written, and what may only be written with a flag. Pure functions; every sink calls it."""
