"""Heartbeats, breaker and addresses on a clock that the test moves."""

import pytest
from support.frames import FakeClock

from hetero.core.errors import ConfigError
from hetero.draft_client.config import DraftClientConfig
from hetero.draft_protocol.address import require_loopback, split_address
from hetero.draft_protocol.breaker import Breaker
from hetero.draft_protocol.limits import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S
from hetero.draft_protocol.liveness import Pulse
from hetero.draft_protocol.messages import Heartbeat
from hetero.draft_server.config import DraftServerConfig


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def pulse(clock):
    return Pulse(clock, interval_s=HEARTBEAT_INTERVAL_S, timeout_s=HEARTBEAT_TIMEOUT_S)


@pytest.mark.parametrize("heard_before_tick_s", [0.0, 0.01, 0.025, 0.049])
def test_a_frozen_peer_is_dead_after_150_ms(clock, pulse, heard_before_tick_s):
    """The last frame came some time before a tick; ticks go on every 50 ms."""
    clock.advance(HEARTBEAT_INTERVAL_S - heard_before_tick_s)
    pulse.heard()
    silent_s = heard_before_tick_s
    clock.advance(heard_before_tick_s)
    while not pulse.tick():
        clock.advance(HEARTBEAT_INTERVAL_S)
        silent_s += HEARTBEAT_INTERVAL_S
        assert silent_s < 1
    assert HEARTBEAT_TIMEOUT_S - 1e-6 <= silent_s < HEARTBEAT_TIMEOUT_S + HEARTBEAT_INTERVAL_S


def test_a_peer_that_beats_lives_for_ever(clock, pulse):
    for _ in range(1000):
        clock.advance(HEARTBEAT_INTERVAL_S)
        pulse.heard()
        clock.advance(0.09)
        assert not pulse.tick()


def test_our_own_sleep_is_no_silence_of_the_peer(clock, pulse):
    """Stopped for an hour: the peer's frames wait unread, so it gets the time to be heard."""
    clock.advance(3600)
    assert not pulse.tick()
    clock.advance(0.04)
    assert not pulse.tick()
    clock.advance(0.04)
    assert pulse.tick()


def test_round_trip_leaves_out_the_peers_own_delay(clock, pulse):
    sent = pulse.beat()
    clock.advance(0.030)
    pulse.received(Heartbeat(5, echo_us=sent.sent_us, echo_delay_us=20_000))
    assert pulse.rtt_s == pytest.approx(0.010)


def test_a_beat_echoes_the_peers_last_one(clock, pulse):
    assert (pulse.beat().echo_us, pulse.beat().echo_delay_us) == (0, 0)
    pulse.received(Heartbeat(777))
    clock.advance(0.025)
    beat = pulse.beat(serving=False)
    assert beat.echo_us == 777
    assert beat.echo_delay_us == pytest.approx(25_000, abs=1)
    assert not beat.serving


@pytest.mark.parametrize("echo_us, delay_us", [(2**64 - 1, 0), (1, 2**64 - 1), (1, 0)])
def test_nonsense_echoes_measure_nothing(pulse, echo_us, delay_us):
    pulse.received(Heartbeat(5, echo_us, delay_us))
    assert pulse.rtt_s is None


def test_breaker_opens_doubles_and_closes(clock):
    breaker = Breaker(clock, threshold=2, cooloff_s=1.0, max_cooloff_s=3.0)
    breaker.failed()
    assert breaker.allows
    for cooloff_s in (1.0, 2.0, 3.0, 3.0):
        breaker.failed()
        assert breaker.tripped
        clock.advance(cooloff_s - 0.01)
        assert not breaker.allows
        clock.advance(0.02)
        assert breaker.allows
    breaker.succeeded()
    assert not breaker.tripped
    breaker.failed()
    assert breaker.allows


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.8.9.1:1"])
def test_loopback_addresses(address):
    require_loopback(address, setting="listen", allow_remote=False, flag="--f")


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "host.example:1"])
def test_remote_addresses_need_the_flag(address):
    with pytest.raises(ConfigError, match=r"listen = .*--f"):
        require_loopback(address, setting="listen", allow_remote=False, flag="--f")
    require_loopback(address, setting="listen", allow_remote=True, flag="--f")


@pytest.mark.parametrize("address", ["", "127.0.0.1", ":1", "h:", "h:x", "h:70000", "h:-1"])
def test_addresses_that_are_none(address):
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        split_address(address, setting="listen")


def test_settings_are_checked_once():
    with pytest.raises(ConfigError, match=r"client_timeout_s = 0\.1"):
        DraftServerConfig(client_timeout_s=0.1)
    with pytest.raises(ConfigError, match="round_credits = 0"):
        DraftServerConfig(round_credits=0)
    with pytest.raises(ConfigError, match=r"heartbeat_timeout_s = 0\.1"):
        DraftClientConfig(heartbeat_timeout_s=0.1)
    with pytest.raises(ConfigError, match="deadline_s = 0"):
        DraftClientConfig(deadline_s=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e30])
def test_a_time_is_a_time(value):
    """Click's float ranges let nan pass, and timers overflow on the rest."""
    with pytest.raises(ConfigError, match="client_timeout_s"):
        DraftServerConfig(client_timeout_s=value)
    with pytest.raises(ConfigError, match="heartbeat_timeout_s"):
        DraftClientConfig(heartbeat_timeout_s=value)
    with pytest.raises(ConfigError, match="deadline_s"):
        DraftClientConfig(deadline_s=value)
