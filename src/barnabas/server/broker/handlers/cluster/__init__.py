"""APIs about the cluster: topics, brokers, configs."""
