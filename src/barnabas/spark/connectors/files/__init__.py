"""Files as a source and a sink: `format("barnabas.files")`."""
