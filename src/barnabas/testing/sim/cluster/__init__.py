"""Shell: simulated clusters of production nodes: their faults, and the rules that must hold in them.

layout.py         the nodes of a cluster, and their configuration
cluster.py        operations on all nodes: start, inspect, heal, wait until the cluster is healthy
view.py           reads the parts of a running node; the only file that knows their attributes
nemesis.py        applies faults at random times; process_faults.py, network_faults.py, disk_faults.py,
                  directory_faults.py, rot_faults.py and operator_actions.py contain the faults, fault_context.py what
                  they share
hostile_clients.py  clients that harm their neighbours if they can, and the siege that measures whether they do
watch.py          checks the rules while the cluster runs: raft_rules.py, replica_rules.py, group_rules.py,
                  coordinator_rules.py, fencing_rules.py, memory_rules.py, over the data that observation.py gathers
storm.py          one run of the cluster scenario
"""
