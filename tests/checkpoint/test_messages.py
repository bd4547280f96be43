"""What a worker told the keeper of its node arrives, however the worker went."""

from __future__ import annotations

import socket

from lattice.checkpoint.messages import receive, send


def test_what_was_sent_arrives_although_the_sender_went_with_answers_unread() -> None:
    worker, keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with worker, keeper:
        for step in (1, 2, 3):
            send(worker, {"do": "keep", "step": step})
        send(keeper, {"released": 1})
        worker.close()  # as a process does that ends or is killed
        assert [receive(keeper)[0] for _ in range(3)] == [{"do": "keep", "step": step} for step in (1, 2, 3)]
        assert receive(keeper) == (None, None)
