"""Where the draft stream may go: it carries prompts and seeds, and v1 has no encryption yet."""

import ipaddress

from hetero.core.errors import ConfigError


def split_address(address: str, *, setting: str) -> tuple[str, int]:
    """``HOST:PORT`` or ``[V6]:PORT`` -> host without brackets, port. Raises ConfigError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{setting} = {address!r}: not HOST:PORT, such as 127.0.0.1:50052.")
    return host.strip("[]"), int(port)


def require_loopback(address: str, *, setting: str, allow_remote: bool, flag: str) -> None:
    """Refuse an address off this host unless ``allow_remote``. Raises ConfigError."""
    host, _ = split_address(address, setting=setting)
    if allow_remote or is_loopback(host):
        return
    raise ConfigError(
        f"{setting} = {address}: not a loopback address, and the draft stream carries prompts in "
        f"clear. Use 127.0.0.1, or give {flag} on a network that you trust."
    )


def is_loopback(host: str) -> bool:
    """Does this name or address stay on this host?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
