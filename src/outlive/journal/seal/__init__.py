"""Sealed stores: keys, encryption, key rotation."""
