"""The loopback tool API: the host's tools, recall and capture for a bridge in another program of this user."""
