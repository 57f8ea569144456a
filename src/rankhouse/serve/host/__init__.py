"""The host: settings, the service's parts in one object, security, limits, life from start to drain."""
