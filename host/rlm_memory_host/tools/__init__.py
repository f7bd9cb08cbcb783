"""The tool registry, policy, dispatcher, call log and the built-in tools."""
