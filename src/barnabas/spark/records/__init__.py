"""Keys and values as typed columns: formats, schema registry, bad records."""
