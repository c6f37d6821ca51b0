"""Change events merged into tables: `create_auto_cdc_flow` and `AUTO CDC INTO`."""
