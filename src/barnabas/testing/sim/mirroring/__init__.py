"""Shell: the scenario of two clusters with cluster links between them (`scenario.py`), its clients (`programs.py`), its
faults (`faults.py`), and the rules that must hold (`rules.py`, `share_rules.py`, `final_rules.py`)."""
