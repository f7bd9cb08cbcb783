"""The kernel transport: local socket, Jupyter channels, attachments and their generations."""
