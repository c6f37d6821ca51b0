"""Shell: a network of hosts in memory, with the behaviour of TCP that programs can observe.

    process A                                                             process B
    transport.write -> send buffer -> window -> [ the link A -> B ] -> receive buffer -> protocol.data_received
                                       ^ stops when B does not read     ^ delay, bandwidth, loss, cut

Whatever happens to packets, a program on TCP sees either every byte once, in order, or a broken connection. So a lost
packet is a delay (a retransmission), and only data of different connections can be reordered. On a cut link bytes wait,
new connections get no answer, and after `give_up_s` the connection breaks. The kernel closes the sockets of a killed
process. A host without power sends nothing; after its restart it answers packets of older connections with a reset.
"""

from __future__ import annotations

from barnabas.testing.sim.network.links import OUTSIDE, NetworkLink
from barnabas.testing.sim.network.network import SimNetwork
from barnabas.testing.sim.network.servers import SimServer, SimSocket
from barnabas.testing.sim.network.transport import SimConnection, SimTransport

__all__ = ["OUTSIDE", "NetworkLink", "SimConnection", "SimNetwork", "SimServer", "SimSocket", "SimTransport"]
