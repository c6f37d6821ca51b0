"""APIs about transactions; InitProducerId and Produce are with the data."""
