"""Ports for tests that name one before somebody listens there."""
import random
import socket


def free_port() -> int:
    """A TCP port at which nobody listens, below those that the system gives to connections of other tests."""
    while True:
        port = random.randrange(15000, 32000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            continue
