"""Shell: clusters of several production nodes in one world: their faults, what must hold in them, and what clients do.

layout.py       which nodes, and their configuration
cluster.py      the nodes together: start, look, heal, wait until all is well
view.py         where in a node things are to be found; the only file that knows
nemesis.py      what goes wrong and when; the faults by kind: processes.py, weather.py, disks.py, operator.py
watch.py        looks at every node all the time; what must hold: raft_rules.py, replica_rules.py, group_rules.py,
                coordinator_rules.py
storm.py        one run from its seed to the verdict
"""
