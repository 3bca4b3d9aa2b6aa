"""Where the work runs: in this process, in several, or on a cluster."""
