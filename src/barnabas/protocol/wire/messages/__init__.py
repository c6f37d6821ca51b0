"""One module per API, each a Table: the request and the response of that API, valid for all their versions."""
