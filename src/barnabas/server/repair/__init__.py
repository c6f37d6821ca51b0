"""Shell: checks and repairs the files of a node's data directories without the node: `barnabas logs verify` and
`barnabas logs repair`.

findings.py       walks the files, and compares them with each other
steps.py          what to do about the findings, and doing it
"""
