"""Machine: who may do what: users and their roles, sessions, masks of fields, and the audit log."""
