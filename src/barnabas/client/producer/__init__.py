"""How records are produced, in transactions or not."""
