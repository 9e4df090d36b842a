"""Many machines, by the engine that is already there: a unit of work for each node, a pure plan, records."""
