"""Jobs: what is submitted to run by itself, somewhere, and can be asked about later."""
