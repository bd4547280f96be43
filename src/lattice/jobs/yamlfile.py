"""A YAML file whose every value knows its line, so that whatever is wrong with it can be told with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lattice.errors import LatticeError, UsageError
from lattice.options.option import Option
from lattice.options.parsing import Given, wrong


class YamlFile:
    """
    A file that was read, and what can be asked of the nodes in it.

    :raises UsageError: it cannot be read, or is no list of keys and values
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = Path(path).resolve().parent
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--file is {path!r}: {getattr(error, 'strerror', None) or error}") from error
        try:
            import yaml
        except ImportError:
            raise LatticeError('job files need PyYAML: pip install "lattice-addons-pytorch[jobs]"') from None
        try:
            self.root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{path}:{mark.line + 1}" if mark else path
            raise UsageError(f"{where}: no YAML: {getattr(error, 'problem', None) or error}") from None
        if not isinstance(self.root, yaml.MappingNode):
            raise UsageError(f"{path}:1: a job file is a list of KEY: VALUE")

    def entries(self, node: Any, wanted: str = "KEY: VALUE lines are wanted here") -> Iterator[tuple[str, Any, Any]]:
        """Give name, key and value of each line of a mapping; a dash in a name is as good as an underscore."""
        if node.id != "mapping":
            raise self.error(node, wanted)
        seen: dict[str, Any] = {}
        for key, value in node.value:
            name = self.word(key).replace("-", "_")  # YAML takes the key "on" for a yes
            if name in seen:
                raise self.error(key, f"{name} is given twice; the first is in line {seen[name].start_mark.line + 1}")
            seen[name] = key
            yield name, key, value

    def option(self, option: Option[object], value: Any) -> Given:
        """Take a value for an option."""
        text = ",".join(self.list(value)) if value.id == "sequence" else self.text(value)
        try:
            option.parse(text)
        except ValueError:
            said = wrong(option, Given(text, f"--{option.name}"), environment=False).removeprefix("--")
            raise self.error(value, said) from None
        return Given(text, f"{self.path}:{value.start_mark.line + 1}")

    def word(self, node: Any) -> str:
        """Give a scalar as it was written: an argument or a variable is text, whatever YAML takes it for."""
        if node.id != "scalar":
            raise self.error(node, "one word or number is wanted here")
        return str(node.value)

    def text(self, node: Any) -> str:
        """Give a scalar as the text of an option."""
        word = self.word(node)
        if node.tag == "tag:yaml.org,2002:null":
            return ""
        if node.tag == "tag:yaml.org,2002:bool":
            return "1" if word.lower() in ("true", "yes", "on") else "0"
        return word

    def list(self, node: Any) -> list[str]:
        """Give a list of words."""
        if node.id != "sequence":
            raise self.error(node, "a list is wanted here, such as [a, b]")
        return [self.word(one) for one in node.value]

    def mapping(self, node: Any) -> dict[str, str]:
        """Give variables: names and words."""
        if node.id != "mapping":
            raise self.error(node, "NAME: VALUE lines are wanted here")
        found = {}
        for key, value in node.value:
            name, text = self.word(key), self.word(value)
            if not name or "=" in name or "\0" in name + text:  # no process could be started with it
                raise self.error(key, f"{name!r} cannot be a variable; accepted: NAME: VALUE, where NAME has no =")
            found[name] = text
        return found

    def unknown(self, key: Any, name: str, known: Collection[str]) -> UsageError:
        """Make the error for a key that nobody knows."""
        near = get_close_matches(name, known, n=1)
        said = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
        return self.error(key, f"unknown key {name!r}{said}")

    def error(self, node: Any, text: str) -> UsageError:
        """Make an error that names file and line."""
        return UsageError(f"{self.path}:{node.start_mark.line + 1}: {text}")
