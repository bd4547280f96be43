"""
Real agents, real etcd, real faults.

What must never happen, and the tests that provoke it (the simulation of whole clusters, in ``tests/simulation``, looks
for 1, 3 and 8 in thousands of schedules besides):

1. Two workers of one round with different ideas of ranks, world size or master: ``Cluster.agree`` after every round of
   every test here; ``soak/test_churn``; a newcomer at rank 0: ``test_membership::test_ranks_stay_while_members_stay…``.
2. A restart that hangs because of what the last attempt left behind: ``soak/test_restarts``;
   ``agent/test_beginnings::test_a_port_that_rank_0_cannot_have…``; ``agent/test_signals::test_a_stubborn_worker…``.
3. A node that is gone and nobody reacts: ``test_losses``, ``test_partitions``, ``test_embedded::test_a_lost_node…``.
4. A worker that outlives its agent: ``agent/test_orphans``, ``process/test_agent_death``, and the end of every cluster
   in these tests, which looks for anything that descended from its agents (``Cluster.close``).
5. A log line or an error lost or deleted by a restart, a non-zero exit hidden as another code: ``agent/test_output``,
   ``agent/test_report``, ``agent/test_exit_codes``, ``test_endings``.
6. A pickle, or a command, accepted from someone who did not authenticate: ``stores/test_served``,
   ``test_embedded::test_a_wrong_password…``, ``test_store::test_what_somebody_else_wrote…``,
   ``agent/test_beginnings::test_the_agent_imports_no_framework_and_no_pickle_reader``.
7. Cloud resources left billing: there are none yet.
8. Two rounds writing the same thing: ``test_losses::test_a_node_that_sleeps_past_its_lease…`` (an old leader wakes up
   and writes nothing), ``test_partitions::test_a_node_that_is_cut_off…``; logs are in a folder per round.
9. A nested agent that joins its parent's run by accident:
   ``agent/test_environment::test_an_agent_inside_a_worker_has_a_run_of_its_own``.
"""
