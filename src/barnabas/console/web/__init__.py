"""Shell: HTTP: routes, sessions, security headers, templates, and the server itself."""
