"""Shell: the changes that users make: one function for each form, with the role that it needs."""
