"""Codec: serializers and deserializers in the wire format of schema registries; they fit our clients as they are."""
