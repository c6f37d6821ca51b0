"""What the page of metrics reads from the state of a node: one module for each subject.

Each has a `collect` method that adds samples to a page, and yields after each piece of work, so that a long page does
not hold the event loop.
"""
