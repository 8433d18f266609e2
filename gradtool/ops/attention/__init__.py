"""Attention, and rotary embedding."""
