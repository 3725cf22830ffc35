"""Choices of the engine's wiring that need no model."""

import pytest

from hetero.services.engine_host import EngineHostConfig, _heartbeat_timeout_s


@pytest.mark.parametrize(
    "address, wish, expected_s",
    [
        ("10.0.0.5:50052", None, 0.15),
        ("card-7.example:50052", None, 0.15),
        ("127.0.0.1:50052", None, 1.0),
        ("localhost:50052", None, 1.0),
        ("[::1]:50052", None, 1.0),
        ("10.0.0.5:50052", 0.5, 0.5),
        ("127.0.0.1:50052", 0.15, 0.15),
    ],
)
def test_a_card_host_of_its_own_is_given_up_sooner(address, wish, expected_s):
    config = EngineHostConfig(heartbeat_timeout_s=wish)
    assert _heartbeat_timeout_s(config, address) == expected_s
