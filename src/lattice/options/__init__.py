"""What the user may say and what it means: one table of options, one parser, one way from values to an AgentSpec."""
