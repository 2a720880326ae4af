"""Stands in for PyTorch Lightning."""
