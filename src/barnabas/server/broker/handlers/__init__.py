"""One file per API, in rooms: data, cluster, groups... Each has `handle(services, ctx, request)`; see `broker.apis` and
`broker.controller_apis`."""
