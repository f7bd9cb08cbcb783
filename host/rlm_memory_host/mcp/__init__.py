"""The tools for agent hosts that speak the Model Context Protocol. The package `mcp` (an extra) is loaded with it."""
