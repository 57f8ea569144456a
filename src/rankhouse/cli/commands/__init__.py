"""One module a sub-command; each holds ``command``, imported only when it runs."""
