from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lattice.core.supervision import (
    DUMP_TIME,
    NOTICE,
    STACKS,
    DumpStacks,
    Exited,
    Group,
    Happening,
    Hung,
    HurryAsked,
    Kill,
    Notify,
    Order,
    Passed,
    Readied,
    ReportDone,
    ReportFailure,
    ReportStopped,
    StopAsked,
    Terminate,
    supervise,
)


def play(group: Group, *happenings: Happening) -> tuple[Group, list[Order]]:
    orders: list[Order] = []
    for happening in happenings:
        group, new = supervise(group, happening)
        orders += new
    return group, orders


def pair() -> Group:
    return Group(frozenset({0, 1}), grace=30)


def test_done_when_all_exit_well() -> None:
    assert play(pair(), Exited(1, 0, 0))[1] == []
    assert play(pair(), Exited(1, 0, 0), Exited(2, 1, 0))[1] == [ReportDone()]


def test_the_first_bad_exit_is_reported_at_once_and_stops_the_rest() -> None:
    group, orders = play(pair(), Exited(1, 1, 3))
    assert orders == [ReportFailure(1), Terminate((0,))]
    assert group.kill_at == 31
    assert play(group, Exited(2, 0, 143))[1] == [ReportStopped()]


def test_a_stop_is_terminate_then_grace_then_kill() -> None:
    group, orders = play(pair(), StopAsked(5))
    assert orders == [Terminate((0, 1))]
    group, orders = play(group, Passed(34.9), Exited(34.95, 0, 0), Passed(35))
    assert orders == [Kill((1,))]
    assert play(group, Exited(35.1, 1, 137))[1] == [ReportStopped()]


def test_a_stop_asked_twice_gives_no_second_grace() -> None:
    group, orders = play(pair(), StopAsked(5), StopAsked(20))
    assert orders == [Terminate((0, 1))]
    assert group.kill_at == 35


def test_hurry_kills_at_once_and_only_once() -> None:
    group, orders = play(pair(), StopAsked(5), HurryAsked(6), Passed(40))
    assert orders == [Terminate((0, 1)), Kill((0, 1))]
    assert play(group, Exited(7, 0, 137), Exited(7, 1, 137))[1] == [ReportStopped()]


def test_a_group_that_is_done_can_still_be_stopped() -> None:
    group, _ = play(pair(), Exited(1, 0, 0), Exited(2, 1, 0))
    assert play(group, StopAsked(3))[1] == [ReportStopped()]


@given(
    st.lists(
        st.one_of(
            st.builds(
                StopAsked,
                st.just(0.0),
                st.sampled_from(["", NOTICE, STACKS]),
                st.frozensets(st.integers(0, 3)),
            ),
            st.builds(HurryAsked, st.just(0.0)),
            st.builds(Readied, st.just(0.0), st.integers(0, 3)),
            st.builds(Hung, st.just(0.0), st.integers(0, 3)),
            st.builds(Passed, st.floats(0, 100)),
        ),
        max_size=6,
    ),
    st.permutations(list(range(4))),
    st.lists(st.sampled_from([0, 0, 1, 137]), min_size=4, max_size=4),
    st.randoms(use_true_random=False),
)
def test_every_group_ends_in_exactly_one_report(others, ranks, statuses, random) -> None:  # type: ignore[no-untyped-def]
    happenings = [*others, *(Exited(1.0, rank, status) for rank, status in zip(ranks, statuses, strict=True))]
    random.shuffle(happenings)
    seen_end = False
    group = Group(frozenset(range(4)), grace=10, notice=5)
    for happening in happenings:
        before = group
        group, orders = supervise(group, happening)
        for order in orders:
            if isinstance(order, ReportDone | ReportStopped) and not before.over:
                assert not seen_end and not group.living
                seen_end = True
            if isinstance(order, Terminate | Kill | Notify | DumpStacks):
                assert set(order.local_ranks) <= before.living
    assert seen_end


def noticed(*listeners: int) -> StopAsked:
    return StopAsked(5, NOTICE, frozenset(listeners))


def courteous() -> Group:
    return Group(frozenset({0, 1}), grace=30, notice=10)


def test_notice_comes_before_the_stop_and_ends_when_all_are_ready() -> None:
    group, orders = play(courteous(), noticed(0, 1), Passed(14.9), Readied(6, 0))
    assert orders == [Notify((0, 1), 15)]
    assert group.deadline == 15
    group, orders = play(group, Readied(7, 1))
    assert orders == [Terminate((0, 1))] and group.deadline == 37


def test_notice_ends_when_its_time_is_over() -> None:
    assert play(courteous(), noticed(1), Passed(15))[1] == [Notify((1,), 15), Terminate((0, 1))]


def test_nobody_is_waited_for_who_did_not_ask() -> None:
    assert play(courteous(), noticed())[1] == [Terminate((0, 1))]
    assert play(Group(frozenset({0}), grace=30, notice=0), noticed(0))[1] == [Terminate((0,))]


def test_a_worker_that_ends_after_its_notice_is_ready_and_no_failure() -> None:
    group, orders = play(courteous(), noticed(0), Exited(6, 0, 3))
    assert orders == [Notify((0,), 15), Terminate((1,))]
    assert play(group, Exited(7, 1, 0))[1] == [ReportStopped()]
    assert play(courteous(), noticed(0, 1), Exited(6, 0, 0), Exited(7, 1, 0))[1][-1] == ReportStopped()


def test_trouble_ends_a_notice() -> None:
    assert play(courteous(), noticed(0), StopAsked(6))[1] == [Notify((0,), 15), Terminate((0, 1))]
    assert play(courteous(), noticed(0), noticed(0))[1] == [Notify((0,), 15)]
    assert play(courteous(), noticed(0), HurryAsked(6), Passed(100))[1] == [Notify((0,), 15), Kill((0, 1))]


def test_a_hang_is_reported_and_all_stacks_are_asked_for_before_the_stop() -> None:
    group, orders = play(courteous(), Hung(5, 1))
    assert orders == [ReportFailure(1, hung=True), DumpStacks((0, 1))]
    assert play(group, Hung(5.1, 0), Passed(5 + DUMP_TIME))[1] == [Terminate((0, 1))]
    assert play(courteous(), Exited(4, 1, 0), Hung(5, 1))[1] == []


def test_a_hang_elsewhere_asks_for_stacks_here() -> None:
    assert play(courteous(), StopAsked(5, STACKS), Passed(5 + DUMP_TIME))[1] == [
        DumpStacks((0, 1)),
        Terminate((0, 1)),
    ]
