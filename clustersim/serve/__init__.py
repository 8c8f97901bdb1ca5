"""A live page on this machine: start comparisons, watch runs, and step through their time.

| name | what |
|---|---|
| `serve` | serve a folder until it is interrupted |
| `make_app` | the application of a folder, for a server or a test |
| `ServedFolder` | what the page may see of the folder: runs, reports, traces |
| `RunPicture` | the cluster at an instant: jobs, GPUs, queue, from the events up to it |
| `Timeline` | pictures along an event log, from which the one of any time is found |
| `Curves` | GPUs in use, running and waiting jobs over the time of a run, as a chart |
| `Watched` | a run that is watched: its picture as shown, and its past |
| `Starter` | starts comparisons and what-ifs as processes of their own |
| `command_of` | the command line of settings from the page |
| `story_of` | what happened to one job, and why it waited |

Needs the extra `serve` (starlette, uvicorn).

Why
- A simulation runs as the ordinary command in a process of its own, and the page reads the log that the run
  writes anyway. So watching costs the simulation nothing, and no closed browser or killed server loses a run.
- A frame is the whole picture, not a change of it. So a slow browser skips frames, and a reload needs no
  past.
- A run writes events in blocks. A frame therefore shows a part of what is new, and the picture keeps moving.
- Values from the page are numbers or words without a slash or a dot. So none can name a file outside the
  folder.
"""

from __future__ import annotations

from .app import make_app
from .curves import Curves
from .folder import ServedFolder
from .picture import RunPicture
from .server import serve
from .starting import Starter, command_of
from .stories import story_of
from .timeline import Timeline
from .watched import Watched

__all__ = [
    "Curves",
    "RunPicture",
    "ServedFolder",
    "Starter",
    "Timeline",
    "Watched",
    "command_of",
    "make_app",
    "serve",
    "story_of",
]
