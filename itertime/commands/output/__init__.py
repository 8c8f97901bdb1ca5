"""Output of the commands of `itertime`.

| module | what |
|---|---|
| `documents` | a plan with its prediction as JSON, the note on errors, wrapped text |
| `search_output` | the plans that a search found |
| `cost_output` | days and dollars of a training: table, CSV, figure |
| `profile_output` | evidence, findings and differences of profiles, the kernels of a layer |
"""

from .documents import error_note, plan_document, wrapped

__all__ = ["error_note", "plan_document", "wrapped"]
