"""Stands in for the plugins of PyTorch Lightning."""
