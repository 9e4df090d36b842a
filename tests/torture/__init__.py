"""The attack suite, bounded and on loopback alone: ``make torture`` runs all of it and prints how many held."""
