"""Machine: whose address it is: bounds and delays of an address hold for all addresses that one host can choose."""

from __future__ import annotations


def address_group(host: str) -> str:
    """The IPv4 address, or the /64 network of an IPv6 address: a host can choose any address of its network.

    A text that is not an address, such as an empty one, is its own group.
    """
    if ":" not in host:
        return host
    from ipaddress import IPv6Address, ip_address  # imported here: a node of IPv4 addresses does not need its 0.6 MB

    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address, or the name `localhost`."""
    if host == "localhost":
        return True
    from ipaddress import ip_address  # imported here: see address_group

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_literal(host: str) -> bool:
    """Whether `host` is an address, not a name."""
    from ipaddress import ip_address  # imported here: see address_group

    try:
        ip_address(host)
    except ValueError:
        return False
    return True
