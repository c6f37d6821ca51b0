"""Calls of our clients that are cancelled or interrupted: at every suspension, at every bytecode where a signal handler
can run, and at random moments.

`attempts.py` interrupts a call. The other modules are programs that make such calls and check what the calls leave
behind. Each program is written once: with the blocking clients its calls return results, with the asyncio clients they
return awaitables, and `Attempts` hides the difference.
"""
