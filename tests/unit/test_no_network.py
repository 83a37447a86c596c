import socket

import pytest


def test_a_unit_test_cannot_open_a_connection():
    with socket.socket() as outside, pytest.raises(AssertionError, match="network"):
        outside.connect(("192.0.2.1", 80))


def test_a_unit_test_cannot_look_a_name_up():
    with pytest.raises(AssertionError, match="network"):
        socket.getaddrinfo("mirror.invalid", 80)
