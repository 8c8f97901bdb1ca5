"""The study of the method on one GPU: its page is fresh, and kernels alone predict its trainings."""

from statistics import fmean

from experiments import method


def test_the_page_is_what_the_program_writes() -> None:
    page = method.PAGE.read_text(encoding="utf-8")
    for table in method.TABLES.values():
        assert "\n".join(table()) in page, "python -m experiments.method"


def test_kernels_alone_predict_within_three_percent() -> None:
    profiles = method.profiles()
    assert len(method.trainings("flash")) == 12
    assert fmean(map(abs, method.errors(profiles["own kernels alone"]))) < 0.03
    assert fmean(map(abs, method.errors(profiles["shipped"]))) < 0.05
