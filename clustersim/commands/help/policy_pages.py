"""The page of each policy that ships, below docs/policies."""

from __future__ import annotations

__all__ = ["page_of"]

_PAGES = {
    "allox": ("allox",),
    "arena": ("arena",),
    "attained-service": ("las", "tiresias", "gittins"),
    "backfill": ("easy", "conservative", "multifactor"),
    "chronus": ("chronus",),
    "deadlines": ("edf-admission",),
    "elastic-shares": ("optimus", "afs", "hesrpt", "max-min"),
    "elasticflow": ("elasticflow", "vtrain-aware"),
    "gandiva": ("gandiva",),
    "gandiva-fair": ("gandiva-fair",),
    "gavel": ("gavel-max-min", "gavel-ftf", "gavel-makespan", "gavel-throughput"),
    "hived": ("hived",),
    "lucid": ("lucid",),
    "muri": ("muri",),
    "pal": ("pal",),
    "pollux": ("pollux",),
    "predicted": ("qssf",),
    "priced": ("priced",),
    "priced-deadlines": ("priced-deadlines",),
    "rubick": ("rubick",),
    "sharing": ("round-robin", "drf", "quota"),
    "shockwave": ("shockwave",),
    "sia": ("sia",),
    "slurm": ("slurm",),
    "themis": ("themis",),
    "unicron": ("unicron",),
}


def page_of(policy: str) -> str:
    """The page that describes a policy; for one without a page of its own, the page of all policies."""
    own_page = next((page for page, policies in _PAGES.items() if policy in policies), None)
    return "docs/policies.md" if own_page is None else f"docs/policies/{own_page}.md"
