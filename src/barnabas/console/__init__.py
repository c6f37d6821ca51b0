"""The web console of a cluster: pages for people and the same documents as JSON, served by `ConsoleServer`.

The package needs the extra `console` (Starlette, Jinja2, uvicorn).
"""
