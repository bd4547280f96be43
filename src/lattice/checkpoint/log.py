"""The log of a place: read, and added to by creating the next number."""

from __future__ import annotations

from lattice.checkpoint.history import Entry, History, Policy, Saved, encoded, history
from lattice.checkpoint.storage import Storage
from lattice.errors import LatticeError

FOLDER = "log"


class TakenOver(LatticeError):
    """Somebody else writes here now."""


def read(storage: Storage) -> History:
    """
    Read all entries.

    :raises OSError: the storage does not answer
    """
    found = []
    for name in storage.names(FOLDER):
        number, mark, rest = name.partition(".json")
        if mark and not rest and number.isdigit():
            try:
                found.append((int(number), bytes(storage.read(f"{FOLDER}/{name}"))))
            except FileNotFoundError:
                pass  # removed meanwhile, so it was not needed
    return history(found)


def add(storage: Storage, entry: Entry) -> History:
    """
    Make an entry the next one.

    :return: the log with it
    :raises TakenOver: somebody else has opened it since
    :raises OSError: the storage does not answer; the entry may be there or not
    """
    while True:
        before = read(storage)
        if entry in before.entries.values():  # an earlier try of which no answer came
            return before
        refusal = before.refusal(entry)
        if refusal:
            raise TakenOver(refusal)
        if storage.create(f"{FOLDER}/{before.next:08d}.json", encoded(entry)):
            return History({**before.entries, before.next: entry})


def tidy(storage: Storage, now: History, policy: Policy, token: str) -> list[str]:
    """
    Remove what nobody wants any more.

    :param now: the log
    :param token: of who tidies
    :return: the folders that are gone
    """
    unwanted = now.unwanted(policy)
    for number in unwanted:  # first, so that nobody takes a checkpoint of which a part is gone
        storage.remove(f"{FOLDER}/{number:08d}.json")
    folders = [entry.folder for entry in unwanted.values() if isinstance(entry, Saved)]
    # The log after the folders: who has been overtaken meanwhile must not take the folders of who did it for strays.
    there = storage.names("")
    strays = read(storage).stray(there, token)
    for folder in (*folders, *strays):
        storage.remove(folder)
    return [*folders, *strays]
