"""One module per API: the request and the response, as classes for all of their versions."""
