"""Classification of public internet addresses.

`ipaddress.is_global` is not the question here: it calls multicast, 6to4, NAT64 and IPv4-compatible
addresses global, and the answer changes between Python releases. So the rule is written down: every
special-purpose IPv4 block is listed, and of IPv6 only the global unicast block counts, less the parts that
lead elsewhere.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

_V4_REFUSED: Final = tuple(
    (int(net.network_address), int(net.netmask))
    for net in map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # the control address of a cloud, public by its number only
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
_V6_GLOBAL: Final = IPv6Network("2000::/3")
_V6_REFUSED: Final = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))
)

Address = IPv4Address | IPv6Address


def is_public(ip: str | Address) -> bool:
    """Return whether `ip` is an ordinary public address; False for anything that is no address at all.

    An IPv6 address that carries an IPv4 address inside (mapped, NAT64, 6to4) or a zone is never public.
    """
    address = _parse(ip) if isinstance(ip, str) else ip
    if isinstance(address, IPv4Address):
        number = int(address)
        return all(number & mask != network for network, mask in _V4_REFUSED)
    if isinstance(address, IPv6Address):
        return (
            address.scope_id is None
            and address in _V6_GLOBAL
            and not any(address in network for network in _V6_REFUSED)
        )
    return False


def _parse(text: str) -> Address | None:
    try:
        return IPv6Address(text) if ":" in text else IPv4Address(text)
    except AddressValueError:
        return None
