"""Replay, steps, effects, waits: how a flow runs, dies and goes on."""
