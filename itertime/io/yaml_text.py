"""YAML text as plain data, within limits: a kilobyte of aliases can stand for more values than memory holds.

`yaml_nodes` gives the checked nodes of a text, with their lines, for readers that need these; `parse_yaml`
gives the data.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from itertime.errors import quoted

MAX_SIZE = 8_000_000
"""Values and their characters, with aliases expanded; a file of 4 MB without aliases has fewer."""

MAX_DEPTH = 64
"""Lists and mappings inside each other."""

TOO_DEEP = "its lists and mappings are nested too deeply"

_MOST_DIGITS = 100  # of an integer, in any base
_STANDARD_INT, _STANDARD_FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class YamlError(ValueError):
    """A text that is not YAML, or beyond the limits; `line` of the text, from 1, or None."""

    def __init__(self, reason: str, line: int | None = None):
        super().__init__(reason)
        self.line = line


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a repeated key is an error (PyYAML silently keeps the last one), and 1e9 and 1.5e3 are
    numbers as in YAML 1.2 (text in YAML 1.1).
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag == _STANDARD_INT and len(node.value) > _MOST_DIGITS:
            raise _wrong(f"a whole number of more than {_MOST_DIGITS} digits", node)
        try:
            return super().construct_object(node, deep=deep)
        except yaml.YAMLError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _wrong(
                f"{quoted(node.value)} is no {kind}" if _is_scalar(node) else str(error), node
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _wrong("a key must be a name", key_node)
            if key in seen:
                raise _wrong(f"key {quoted(key)} is given twice; remove one", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")
_StrictLoader.add_implicit_resolver(_STANDARD_FLOAT, _NUMBER, [*"-+.0123456789"])


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _wrong(reason: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, reason, node.start_mark)


def parse_yaml(text: str) -> Any:
    """The data in YAML text. Raises YamlError, a ValueError, if the text is not YAML or beyond the limits."""
    return _load(text, _StrictLoader, construct=True)


def yaml_nodes(text: str) -> yaml.Node | None:
    """The nodes of YAML text, within the limits; None if it is empty. Raises YamlError."""
    return _load(text, yaml.SafeLoader, construct=False)


def _load(text: str, kind: type[yaml.SafeLoader], *, construct: bool) -> Any:
    try:
        loader = kind(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _Size().of(node, 0)
            return loader.construct_document(node) if construct else node
        finally:
            loader.dispose()
    except RecursionError:
        raise YamlError(TOO_DEEP) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(f"character {error.character:#04x} cannot be in a text file", line) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise YamlError(reason, None if mark is None else mark.line + 1) from None


class _Size:
    """Values and characters in a node with its aliases expanded; each node is looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # by id of the node: size, and depth below it

    def of(self, node: yaml.Node, depth: int) -> tuple[int, int]:
        """Raises a YAMLError for a node that is too large, nested too deeply or part of itself."""
        if _is_scalar(node):
            return 1 + len(node.value), 0
        size_and_depth = self._known.get(id(node))
        if size_and_depth is None:
            if depth >= MAX_DEPTH:
                raise _wrong(TOO_DEEP, node)
            self._known[id(node)] = (0, MAX_DEPTH)  # while its parts are looked at: an alias here is a cycle
            pairs = isinstance(node, yaml.MappingNode)
            parts = [part for pair in node.value for part in pair] if pairs else node.value
            sizes = [self.of(part, depth + 1) for part in parts]
            size = 1 + sum(size for size, _ in sizes)
            size_and_depth = size, 1 + max((below for _, below in sizes), default=0)
            self._known[id(node)] = size_and_depth
        if size_and_depth[0] > MAX_SIZE:
            raise _wrong(f"its aliases stand for more than {MAX_SIZE:,} values or characters", node)
        if depth + size_and_depth[1] > MAX_DEPTH:
            raise _wrong(TOO_DEEP, node)
        return size_and_depth
