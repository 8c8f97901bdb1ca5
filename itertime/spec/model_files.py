"""Models in files: published shapes in `itertime/models/`, each with its source, and users' own."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from itertime.errors import UserError
from itertime.io import construct

from .model import ModelSpec
from .references import Reference

__all__ = ["MODELS", "as_model", "list_models", "load_model", "model_of", "model_reference"]

MODELS = Path(__file__).parents[1] / "models"


def list_models() -> list[str]:
    """Names of the shapes that ship with the package, in alphabetical order."""
    return list(_shipped())


@cache
def _shipped() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in MODELS.glob("*.yaml")))


@cache
def load_model(name: str) -> ModelSpec:
    """The shipped model `name`, or the model in a YAML or JSON file if `name` is a path (by its ending).

    Raises UnknownName for a name that is not shipped, UserError for a file that is not a model.
    """
    return model_of(model_reference(name))


def as_model(model: ModelSpec | str) -> ModelSpec:
    """A model as it is, or the one that a name or a file states. Raises as `load_model` does."""
    return load_model(model) if isinstance(model, str) else model


def model_reference(name: str) -> Reference:
    """The keys of a model, and the files that they come from. Raises as `load_model` does."""
    return Reference.read("model", name, MODELS, ModelSpec)


def model_of(reference: Reference) -> ModelSpec:
    """The model of these keys. UserError, naming file and key, if they are not those of a model."""
    where = reference.where
    try:
        return construct(ModelSpec, reference.content, where)
    except UserError as error:
        text = str(error).removeprefix(f"model {reference.content.get('name')}: ")
        raise UserError(text if text.startswith(f"{where}: ") else f"{where}: {text}") from error
