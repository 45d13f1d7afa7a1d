"""Outlive beside a web application."""

from outlive.web.asgi import lifespan

__all__ = ["lifespan"]
