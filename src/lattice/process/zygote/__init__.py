"""
The zygote program. Its entry must be named ``sitecustomize``: this folder is put at the head of PYTHONPATH, and nothing
in it is ever imported by the agent.
"""
