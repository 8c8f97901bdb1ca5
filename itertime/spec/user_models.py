"""Models in files: published shapes in `itertime/models/`, each with its source, and users' own.

The jobs of a trace name shipped models, and files of the user by their path, relative to the trace's own
folder, or by their name without ending in a folder that the user names (`--model-path`). A trace may come
from elsewhere, so a path in it cannot leave its folder, and errors quote nothing of such a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from itertime.errors import UserError
from itertime.io import MAX_BYTES, construct, names_file, sha256, shown

from .hub import imported_model, is_hub_config
from .lengths import is_path
from .model import ModelSpec
from .references import Reference, SpecCache

MODELS = Path(__file__).parents[1] / "models"


def list_models() -> list[str]:
    """Names of the shapes that ship with the package, in alphabetical order."""
    return list(_shipped())


@cache
def _shipped() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in MODELS.glob("*.yaml")))


def load_model(name: str | Path) -> ModelSpec:
    """The shipped model `name`, or the model in a YAML or JSON file if `name` is a path (by its ending).

    Raises UnknownName for a name that is not shipped, UserError for a file that is not a model.
    """
    return _LOADED.load(name)


def as_model(model: ModelSpec | str | Path) -> ModelSpec:
    """A model as it is, or the one that a name or a file states. Raises as `load_model` does, and UserError
    for anything else.
    """
    if isinstance(model, ModelSpec):
        return model
    if isinstance(model, str | Path):
        return load_model(model)
    raise UserError(f"model={type(model).__name__}: must be a model, its name, or its file")


def model_reference(name: str | Path) -> Reference:
    """The keys of a model, and the files that they come from, a config.json of Hugging Face among them.
    Raises as `load_model` does.
    """
    return Reference.read("model", name, MODELS, ModelSpec, _keys_of_file)


def _keys_of_file(content: dict[str, Any], path: Path) -> dict[str, Any]:
    return imported_model(content, path).keys if is_hub_config(content) else content


def model_of(reference: Reference) -> ModelSpec:
    """The model of these keys. UserError, naming file and key, if they are not those of a model."""
    where = reference.where
    try:
        return construct(ModelSpec, reference.content, where)
    except UserError as error:
        text = str(error).removeprefix(f"model {reference.content.get('name')}: ")
        raise UserError(text if text.startswith(f"{where}: ") else f"{where}: {text}") from error


_DEPTH = re.compile(r",layers=(\d{1,6})$")
"""Where a number of layers stands in the name of a model that has fewer than the one it is made of."""


def at_depth(name: str, layers: int | None) -> str:
    """The name by which `Models.find` knows a model with so many of its layers; None: all of them.

    >>> at_depth("bert-large", 12), at_depth("bert-large,layers=12", None)
    ('bert-large,layers=12', 'bert-large')
    """
    whole = _DEPTH.sub("", name)
    return whole if layers is None else f"{whole},layers={layers}"


def depth_of(name: str) -> int | None:
    """The layers in such a name; None if it is that of a whole model."""
    match = _DEPTH.search(name)
    return int(match[1]) if match else None


def _shallow(model: ModelSpec, layers: int, name: str) -> ModelSpec:
    """The model with so many of its layers. UserError if it has fewer, or lists them by kind."""
    if model.stack:
        raise UserError("lists its layers by kind, so that their number alone says not which it has")
    if not model.dense_layers < layers <= model.layers:
        least = f"more than the {model.dense_layers} without experts" if model.dense_layers else "at least 1"
        raise UserError(f"has {model.layers} layers, not {layers}; after @ state {least}, at most all")
    return replace(model, name=name, layers=layers, parameters_published="", active_parameters_published="")


_LOADED = SpecCache(model_reference, model_of)
_SHIPPED = "the shipped models"


@dataclass(frozen=True)
class _UserModel:
    """A model of the user, and the files that state it with their hashes, its own file first."""

    spec: ModelSpec
    files: tuple[tuple[str, str], ...]


class Models:
    """The models that jobs may name. Each file is read once, when a job first names it.

    `folder`: where paths start, and which they may not leave; None for jobs that a program made, which may
    name any file. `search`: folders of models that are named without ending. Raises UserError if one of them
    cannot be read.
    """

    def __init__(self, folder: str | Path | None = None, search: Sequence[str | Path] = ()):
        self._folder = None if folder is None else Path(folder)
        self._places: dict[str, list[Path]] = {}
        self._own: dict[str, _UserModel] = {}
        for searched_folder in search:
            for path in _models_in(Path(searched_folder)):
                self._places.setdefault(path.stem, []).append(path)

    @classmethod
    def recorded(cls, document: object) -> Models:
        """The models of an earlier run, as `document` made them. No file is read but tables of lengths.
        UserError for a document that `document` did not make, and for such a table that has changed.
        """
        models = cls(folder="")
        for name, entry in (document if isinstance(document, Mapping) else {}).items():
            try:
                files = tuple((str(file["path"]), str(file["sha256"])) for file in entry["files"])
                model = models._own[name] = _UserModel(ModelSpec(**entry["spec"]), files)
            except (KeyError, TypeError, ValueError, ArithmeticError, UserError):
                raise UserError(f"manifest.json: models: {shown(name)} is not stated as a model") from None
            _refuse_changed_lengths(name, model)
        return models

    def document(self) -> dict[str, Any]:
        """The models of the user that were named so far, with their files, as plain data."""
        return {
            name: {
                "files": [{"path": path, "sha256": digest} for path, digest in model.files],
                "spec": {key: _plain(value) for key, value in asdict(model.spec).items()},
            }
            for name, model in sorted(self._own.items())
        }

    def names(self) -> list[str]:
        """All names without ending, in alphabetical order, and the files that were named so far."""
        return sorted({*list_models(), *self._places, *self._own})

    def find(self, name: str) -> ModelSpec | None:
        """The model of this name, which may end in fewer layers (`at_depth`); None if there is none.

        UserError for a path that cannot be used, a file that is no model, a name in several places, and
        layers that the model has not.
        """
        if name not in self._own:
            if (layers := depth_of(name)) is not None:
                model = self.find(at_depth(name, None))
                if model is None:
                    return None
                self._own[name] = _UserModel(_shallow(model, layers, name), ())
            elif names_file(name):
                self._own[name] = self._load_path(name)
            else:
                places = self._places.get(name, [])
                shipped = name in list_models()
                if len(places) + shipped > 1:
                    where = [*([_SHIPPED] if shipped else []), *(str(path) for path in places)]
                    raise UserError(f"is in {' and in '.join(where)}; rename one of them")
                if not places:
                    return load_model(name) if shipped else None
                self._own[name] = _loaded(places[0], None)
        return self._own[name].spec

    def _load_path(self, name: str) -> _UserModel:
        if self._folder is None:
            return _loaded(Path(name), None)
        path = self._folder / name
        if os.path.isabs(name) or ".." in Path(name).parts or not _is_inside(path, self._folder):
            problem = "leads out of the folder of the trace"
            raise UserError(f"{problem}; name the model without ending, and its folder by --model-path")
        if not path.is_file():
            raise UserError(f"there is no file {path}; a path starts at the folder of the trace")
        try:
            return _loaded(path, self._folder)
        except UserError:
            raise UserError(f"is not the file of a model; `itertime models show {path}` says why") from None


def _models_in(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise UserError(f"--model-path {folder}: cannot be read: {error.strerror or error}") from None
    for name in names:
        if names_file(name):
            yield folder / name


def _loaded(path: Path, folder: Path | None) -> _UserModel:
    """The model in a file. UserError if there is none, or if it extends a file that is not `within`."""
    reference = model_reference(str(path))
    model_file, *extended = reference.files
    files = [model_file, *(file for file in extended if file in reference.user_files)]
    model = model_of(reference)
    if is_path(model.lengths):
        files.append(Path(model.lengths))
    if folder is not None and not all(_is_inside(file, folder) for file in files):
        raise UserError(f"{path}: names a file out of its folder")
    try:
        hashes = tuple((str(file), sha256(file, MAX_BYTES)) for file in files)
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read, or a file that it names: {text}") from None
    model.sample_lengths()  # which raises for a wrong table
    return _UserModel(model, hashes)


def _refuse_changed_lengths(name: str, model: _UserModel) -> None:
    """UserError if a model's table of lengths is a file other than the one that the manifest states."""
    path = model.spec.lengths
    if not is_path(path):
        return
    try:
        unchanged = sha256(path, MAX_BYTES) == dict(model.files).get(str(Path(path)))
    except (OSError, ValueError):
        unchanged = False
    if not unchanged:
        problem = f"the lengths of model {shown(name)}, {shown(path)}, are not those that the run read"
        raise UserError(f"manifest.json: {problem}; put the file back")


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, symbolic links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
