"""Codec: serializers and deserializers in the wire format of schema registries, for Barnabas' producers and
consumers.
"""
