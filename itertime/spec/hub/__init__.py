"""Models from the config.json of Hugging Face Transformers.

| name | what |
|---|---|
| `is_hub_config` | whether a mapping is such a config |
| `imported_model`, `ImportedModel` | the model of one: its keys, its parameters |

Why
- `architectures.yaml` says what no config does: which linear layers have biases, which norms there are. All
  else is read from keys, whatever the architecture: a new one is an entry, or none.
- Parameters are counted from the tensors of the architecture. Keys of a model describe what costs time; what
  they count too few or too many is stated as `layer_extra_parameters` and `extra_parameters`.
- A key that is not understood is refused, unless its value says that something is absent or it is known to
  change no work.
"""

from .importing import ImportedModel, imported_model, is_hub_config

__all__ = ["ImportedModel", "imported_model", "is_hub_config"]
