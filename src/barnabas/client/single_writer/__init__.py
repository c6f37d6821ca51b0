"""Shell: state that several processes share through a compacted topic, to which one of them writes at a time."""
