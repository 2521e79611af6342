"""The sample application's schema, in two steps."""
