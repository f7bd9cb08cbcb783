"""Recording, resolving and searching exact results: decisions over storage, no transport and no network."""
