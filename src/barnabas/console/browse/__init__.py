"""Shell: reads records within limits, filters, decodes and masks them."""
