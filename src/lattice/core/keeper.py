"""How a worker finds the keeper of its node's checkpoints."""

VARIABLE = "LATTICE_KEEPER"
"""the name of the abstract socket on which it listens"""
RUN = "LATTICE_RUN_UUID"
"""the variable that tells a run from others of the same id, before and after it"""
NOT_WRITTEN = 74
"""exit code of a run that went well but for a checkpoint that could not be written; EX_IOERR of sysexits.h"""
