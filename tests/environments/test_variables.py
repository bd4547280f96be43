from __future__ import annotations

import json
import sys
from subprocess import run

import pytest

from lattice.core.spec import StoreSpec
from lattice.core.topology import Assignment, RosterEntry
from lattice.environments import FRAMEWORKS, environment
from lattice.environments.identity import identity
from lattice.environments.store import store_variables

FIRST = RosterEntry("a", 0, 0, 2, "h0", "10.0.0.1", (5000, 5001))
SECOND = RosterEntry("b", 1, 2, 3, "h1", "fd00::2", (6000, 6001, 6002))
ASSIGNMENT = Assignment("r1", 7, 2, 5, "trainer", SECOND, 2, 5, "10.0.0.1", 5000, (SECOND, FIRST))


def test_every_worker_knows_who_it_is() -> None:
    assert identity(ASSIGNMENT, 1) == {
        "LATTICE_RUN_ID": "r1",
        "LATTICE_ROUND": "7",
        "LATTICE_RESTART_COUNT": "2",
        "LATTICE_WORKER_ROLE": "trainer",
        "LATTICE_RANK": "3",
        "LATTICE_LOCAL_RANK": "1",
        "LATTICE_GROUP_RANK": "1",
        "LATTICE_WORLD_SIZE": "5",
        "LATTICE_LOCAL_WORLD_SIZE": "3",
        "LATTICE_GROUP_WORLD_SIZE": "2",
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_worker_variable_has_the_name_of_an_option(framework: str) -> None:
    from lattice.options.table import option_variables

    store = StoreSpec("etcd", (("h", 1),), user="u", password="p", cacert="a", cert="b", key="c")
    given = {
        *identity(ASSIGNMENT, 0),
        *environment(framework).variables(ASSIGNMENT, 0, "error.json"),
        *environment(framework).defaults(2, {}),
        *store_variables(store, 5),
    }
    assert not given & set(option_variables())


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_answers_the_whole_protocol(framework: str) -> None:
    chosen = environment(framework)
    assert chosen.ports(3) >= 1
    assert chosen.whole_roster() == (framework == "tensorflow")
    for given in (chosen.variables(ASSIGNMENT, 0, "error.json"), chosen.defaults(1, {}), chosen.defaults(2, {})):
        assert all(isinstance(text, str) for pair in given.items() for text in pair)
    assert isinstance(chosen.notices(2, {}), tuple)


def test_the_environments_import_no_framework() -> None:
    names = ", ".join(f"lattice.environments.{name}" for name in FRAMEWORKS)
    frameworks = "{'torch', 'tensorflow', 'jax', 'numpy', 'mpi4py', 'horovod'}"
    program = f"import sys, {names}; print(sorted({frameworks} & set(sys.modules)))"
    assert run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_generic_adds_nothing() -> None:
    assert environment("generic").variables(ASSIGNMENT, 0, "e") == {}
    assert environment("generic").defaults(8, {}) == {}
    assert environment("generic").notices(8, {}) == ()


def test_pytorch_gets_what_torchrun_sets() -> None:
    assert environment("pytorch").variables(ASSIGNMENT, 1, "/logs/error.json") == {
        "RANK": "3",
        "WORLD_SIZE": "5",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_NAME": "trainer",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "5",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "5000",
        "TORCHELASTIC_RUN_ID": "r1",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": "/logs/error.json",
    }


def test_pytorch_defaults_give_way_to_the_user() -> None:
    pytorch = environment("pytorch")
    assert pytorch.defaults(1, {}) == {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    assert pytorch.defaults(2, {}) == {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": "1"}
    assert pytorch.defaults(2, {"OMP_NUM_THREADS": "4", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}) == {}


def test_pytorch_tells_about_threads_only_when_it_sets_them() -> None:
    pytorch = environment("pytorch")
    assert "OMP_NUM_THREADS" in pytorch.notices(2, {})[0]
    assert pytorch.notices(1, {}) == ()
    assert pytorch.notices(2, {"OMP_NUM_THREADS": "4"}) == ()


def test_tensorflow_names_every_worker_in_order_of_rank() -> None:
    tensorflow = environment("tensorflow")
    assert tensorflow.ports(3) == 3
    assert json.loads(tensorflow.variables(ASSIGNMENT, 2, "e")["TF_CONFIG"]) == {
        "cluster": {"worker": ["10.0.0.1:5000", "10.0.0.1:5001", "[fd00::2]:6000", "[fd00::2]:6001", "[fd00::2]:6002"]},
        "task": {"type": "worker", "index": 4},
    }


def test_jax_names_the_coordinator_and_the_place() -> None:
    given = environment("jax").variables(ASSIGNMENT, 1, "e")
    assert given["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:5000"
    assert (given["OMPI_COMM_WORLD_RANK"], given["OMPI_COMM_WORLD_SIZE"]) == ("3", "5")
    assert (given["JAX_PROCESS_ID"], given["JAX_NUM_PROCESSES"]) == ("3", "5")


@pytest.mark.parametrize(
    ("workers", "inherited", "expected"),
    [
        (1, {"CUDA_VISIBLE_DEVICES": "4,5,6"}, {"JAX_LOCAL_DEVICE_IDS": "0,1,2"}),
        (1, {"CUDA_VISIBLE_DEVICES": ""}, {}),
        (1, {"CUDA_VISIBLE_DEVICES": "4,5", "JAX_LOCAL_DEVICE_IDS": "1"}, {}),
        (2, {"CUDA_VISIBLE_DEVICES": "4,5"}, {}),
    ],
)
def test_the_only_jax_worker_of_a_node_sees_all_its_devices(
    workers: int, inherited: dict[str, str], expected: dict[str, str]
) -> None:
    assert environment("jax").defaults(workers, inherited) == expected


def test_mpi_and_horovod_give_ranks_under_their_names() -> None:
    mpi, horovod = (environment(name).variables(ASSIGNMENT, 1, "e") for name in ("mpi", "horovod"))
    assert mpi["OMPI_COMM_WORLD_RANK"] == mpi["PMI_RANK"] == "3"
    assert mpi["OMPI_COMM_WORLD_SIZE"] == mpi["PMI_SIZE"] == mpi["OMPI_UNIVERSE_SIZE"] == "5"
    assert (mpi["OMPI_COMM_WORLD_LOCAL_RANK"], mpi["OMPI_COMM_WORLD_LOCAL_SIZE"]) == ("1", "3")
    assert mpi.items() <= horovod.items()
    assert (horovod["HOROVOD_RANK"], horovod["HOROVOD_SIZE"]) == ("3", "5")
    assert (horovod["HOROVOD_CROSS_RANK"], horovod["HOROVOD_CROSS_SIZE"]) == ("1", "2")


def test_workers_learn_about_a_store_only_if_it_is_etcd() -> None:
    assert store_variables(StoreSpec("memory"), 5) == {}
    assert store_variables(StoreSpec("embedded", (("h", 1),)), 5) == {}
    assert store_variables(StoreSpec("etcd", (("h", 2379), ("::1", 2380)), user="u", password="p"), 5) == {
        "LATTICE_STORE_ENDPOINTS": "h:2379,[::1]:2380",
        "LATTICE_STORE_LEASE": "5",
        "LATTICE_STORE_USER": "u",
        "LATTICE_STORE_PASSWORD": "p",
    }
