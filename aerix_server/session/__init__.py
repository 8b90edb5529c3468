"""Conversations: their log on disk, what is rebuilt from it, the diff of a request, and the sessions of a process."""
