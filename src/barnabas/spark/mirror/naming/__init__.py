"""What topics are called on both sides, and which topics, groups and configs are mirrored."""
