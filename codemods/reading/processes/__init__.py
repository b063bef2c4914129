"""The processes of a program: their ranks, their devices, and what a single one comes to."""
