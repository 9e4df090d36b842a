"""NVIDIA's forward-compatibility libraries above an old driver: where they come from, and whether they count here."""
