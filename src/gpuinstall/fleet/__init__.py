"""Many machines, by the engine that is already there: work for each node, a plan, records."""
