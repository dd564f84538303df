"""Ladders of gates: what any machine can prove, and a matrix of models on NPUs."""
