"""What is to be done in the target cluster: topics, configs, ACLs, checkpoints, groups; and what is noticed."""
