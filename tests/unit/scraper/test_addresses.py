"""Classification of public addresses."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from indexmill.platform.security.addresses import is_public

PRIVATE = [
    "0.0.0.1", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1",
    "127.255.255.255", "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255",
    "192.0.0.1", "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::1", "::",
    "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1",
    "2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "fe80::1", "fe80::1%lo", "fec0::1", "fc00::1",
    "fd00:ec2::254", "ff02::1", "5f00::1", "100::1", "4000::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
    "198.20.0.0", "223.255.255.255", "2001:200::1", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e",
    "3ffe:ffff::1",
]  # fmt: skip


@pytest.mark.shows("B36", "B39", "S10")
@pytest.mark.parametrize("ip", PRIVATE)
def test_special_addresses_are_not_public(ip: str) -> None:
    assert not is_public(ip)


@pytest.mark.parametrize("ip", PUBLIC)
def test_ordinary_addresses_are_public(ip: str) -> None:
    assert is_public(ip)


@pytest.mark.parametrize(
    "text", ["", "example.com", "1.2.3", "01.2.3.4", "0x7f.1", "1.2.3.4 ", "1.2.3.4/8", ":::", "8.8.8.8:80"]
)
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)


def test_an_address_object_is_taken_too() -> None:
    assert is_public(IPv4Address("8.8.8.8"))
    assert not is_public(IPv4Address("10.0.0.1"))
