"""Delivery to the memory service: a durable outbox and the one worker that empties it.

`outbox` owns the folder, `lanes`, `circuit` and `decisions` decide without I/O, `worker` does what they say,
`compose` turns texts into deliveries, `inmemory` is the port without a network.
"""
