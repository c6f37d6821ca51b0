"""The commands of users, tokens, ACLs and quotas."""
