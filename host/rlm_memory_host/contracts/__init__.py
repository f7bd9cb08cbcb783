"""What the layers agree on: scope, identifiers, records, ports, the table of codes. No I/O here."""
