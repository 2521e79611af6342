"""The sample application of django_client.py."""
