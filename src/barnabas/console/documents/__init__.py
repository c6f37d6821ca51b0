"""Shell: the document of each page: JSON values, which `/api` sends as they are and templates turn into HTML."""
