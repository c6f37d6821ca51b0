"""Shell: a network of hosts in memory, as TCP shows one to programs.

    process A                                                             process B
    transport.write -> send buffer -> window -> [ the link A -> B ] -> receive buffer -> protocol.data_received
                                       ^ stops when B does not read     ^ delay, bandwidth, loss, cut

A program on TCP sees bytes in order, each once, or a broken connection, whatever happens to packets. So a lost packet
is a delay here (a retransmission), duplicates and reordering happen only between connections, and a cut link is
silence: bytes wait, new connections get no answer, and after `give_up_s` the connection breaks. A process that is
killed has its sockets closed by its kernel; a host without power says nothing, and resets what is sent to it once it is
back.
"""

from __future__ import annotations

from barnabas.testing.sim.network.links import OUTSIDE, NetworkLink
from barnabas.testing.sim.network.network import SimNetwork
from barnabas.testing.sim.network.servers import SimServer, SimSocket
from barnabas.testing.sim.network.transport import SimConnection, SimTransport

__all__ = ["OUTSIDE", "NetworkLink", "SimConnection", "SimNetwork", "SimServer", "SimSocket", "SimTransport"]
