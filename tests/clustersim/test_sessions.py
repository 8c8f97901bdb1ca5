"""Sessions of `clustersim` on the command line: exit codes, and every word that is printed (`sessions/`)."""

from pathlib import Path

import pytest

from tests.sessions import Session, load, replay

SESSIONS = {
    f"{file.stem}: {session['case']}": session
    for file in sorted(Path(__file__).parent.glob("sessions/*.yaml"))
    for session in load(file)
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_prints_what_it_is_said_to(name: str, tmp_path: Path) -> None:
    session: Session = SESSIONS[name]
    assert replay(session, tmp_path.resolve())["steps"] == session["steps"]
