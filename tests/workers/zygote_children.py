"""Has children by every method of multiprocessing, and says what they are."""

import concurrent.futures
import multiprocessing
import os
import sys
from typing import Any


def describe(number: int) -> tuple[object, ...]:
    main = sys.modules["__main__"]
    return (
        number,
        multiprocessing.current_process().name,
        main.__name__,
        os.path.basename(getattr(main, "__file__", "none")),  # noqa: PTH119
        sys.argv,
        os.environ.get("RANK"),
        "zygote" in " ".join(sys.path),
    )


def put(queue: "multiprocessing.Queue[object]", number: int) -> None:
    queue.put(describe(number))


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context: Any = multiprocessing.get_context(method)
        queue = context.Queue()
        processes = [context.Process(target=put, args=(queue, number)) for number in range(2)]
        for process in processes:
            process.start()
        print(method, sorted(queue.get() for _ in processes))
        for process in processes:
            process.join()
        print([process.exitcode for process in processes])
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            print([answer[0] for answer in pool.map(describe, range(4))])
    print(multiprocessing.current_process().name, multiprocessing.parent_process())
