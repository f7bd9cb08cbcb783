"""The parts of a running host, put together from the settings. Only `app` uses it."""
