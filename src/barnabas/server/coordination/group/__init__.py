"""The group coordinator: classic, consumer and share groups, and their committed offsets."""
