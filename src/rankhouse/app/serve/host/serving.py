"""A service's life: bind, warm up while probes are answered, drain on SIGTERM, end."""

from __future__ import annotations

import socket

import uvicorn

from rankhouse.app.serve.host.application import build_app
from rankhouse.app.serve.host.service import Service
from rankhouse.core.errors import WrongUse


def bind(host: str, port: int) -> socket.socket:
    """Take an address before anything is opened, so that a port in use is said at once.

    Args:
        host: The address.
        port: The port; 0 takes a free one.

    Raises:
        WrongUse: Nothing can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise WrongUse(
            f"--port {port}: nothing can listen on {host}:{port} ({error.strerror}); another program may; "
            "name another port, or 0 for a free one"
        ) from error
    return listener


def serve(service: Service, listener: socket.socket) -> None:
    """Answer requests until SIGTERM or Ctrl-C.

    Args:
        service: What is served.
        listener: A bound socket.
    """
    config = uvicorn.Config(
        build_app(service), loop="auto", http="httptools", ws="none", lifespan="off",
        log_config=None, access_log=False, server_header=False,
    )  # fmt: skip
    service.warm()
    try:
        uvicorn.Server(config).run([listener])
    finally:
        service.close()
        listener.close()
