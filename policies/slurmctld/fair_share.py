"""Usage of associations, and the fair-share factor of users: Fair Tree and the classic algorithm.

Sources: Slurm's pages "Fair Tree Fairshare Algorithm" and "Classic Fairshare Algorithm"; slurm.conf(5),
`PriorityDecayHalfLife`, `PriorityFlags`, `FairShareDampeningFactor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf

from clustersim.sites import Association

__all__ = ["ShareTree"]

ROOT = "root"
"""The account at the top, and the user in it. Both are associations of every cluster."""


class _Branch:
    """An account, or a user in an account (`is_user`). `share`: None stands for `parent`. `usage`:
    billing-seconds, decayed; of an account those of everything below it, too.
    """

    __slots__ = ("above", "below", "is_user", "name", "share", "usage")

    def __init__(self, name: str, share: int | None, above: _Branch | None, is_user: bool = False):
        self.name, self.share, self.above, self.is_user = name, share, above, is_user
        self.usage = 0.0
        self.below: list[_Branch] = []
        if above is not None:
            above.below.append(self)

    @property
    def fair_share_account(self) -> _Branch | None:
        """The account above whose shares it divides with others: the nearest that has shares of its own."""
        account = self.above
        while account is not None and account.share is None:
            account = account.above
        return account

    def competitors(self) -> list[_Branch]:
        """What divides the shares of an account: the branches below it, and below those with the share
        `parent`.
        """
        if all(branch.is_user or branch.share is not None for branch in self.below):
            return self.below
        branches = []
        for branch in self.below:
            is_skipped = branch.share is None and not branch.is_user
            branches += branch.competitors() if is_skipped else [branch]
        return branches

    def level(self) -> float:
        """Level Fair Share: the part of its siblings' shares over its part of their usage. Infinite for a
        branch without usage, 0 for one without shares. A user whose share is `parent` has its account's.
        """
        account = self.fair_share_account
        if self.share is None and account is not None:
            return account.level()
        siblings = [self] if account is None else account.competitors()
        if not self.share:
            return 0.0
        if self.usage <= 0.0:
            return inf
        shares = sum(sibling.share or 0 for sibling in siblings)
        usage = sum(sibling.usage for sibling in siblings)
        return (self.share / shares) / (self.usage / usage)


class ShareTree:
    """The tree of accounts and users with their shares and usage.

    A user or an account that the site does not list becomes an association with one share when it is first
    asked for; its account lies below the root. What is below an account whose share is `parent` competes with
    the siblings of that account, and users whose share is `parent` have the standing of their account.
    """

    def __init__(self, associations: Iterable[Association] = ()):
        self._root = _Branch(ROOT, 1, None)
        self._accounts: dict[str, _Branch] = {ROOT: self._root}
        self._users: dict[tuple[str, str], _Branch] = {}
        entries = [entry for entry in associations if entry.account != ROOT or entry.user]
        self._add_accounts([entry for entry in entries if not entry.user])
        for entry in entries:
            if entry.user:
                self._add_user(entry.account, entry.user, entry.Share)
        if (ROOT, ROOT) not in self._users:
            self._add_user(ROOT, ROOT, 1)

    def _add_accounts(self, entries: Sequence[Association]) -> None:
        waiting_entries = list(entries)
        while waiting_entries:
            placeable = [
                entry for entry in waiting_entries if (entry.parent or ROOT) in self._accounts
            ] or waiting_entries[:1]
            for entry in placeable:
                above = self._accounts.get(entry.parent or ROOT, self._root)
                self._accounts[entry.account] = _Branch(entry.account, entry.Share, above)
                waiting_entries.remove(entry)

    def _add_user(self, account: str, user: str, share: int | None) -> _Branch:
        above = self._accounts.get(account)
        if above is None:
            above = self._accounts[account] = _Branch(account, 1, self._root)
        branch = self._users.get((account, user))
        if branch is None:
            branch = self._users[account, user] = _Branch(user, share, above, is_user=True)
        return branch

    def user(self, account: str, user: str) -> _Branch:
        """The association of a user in an account."""
        return self._users.get((account, user)) or self._add_user(account, user, 1)

    def charge(self, account: str, user: str, billing_s: float) -> None:
        """Add billing-seconds to the usage of a user and of all accounts above."""
        branch: _Branch | None = self.user(account, user)
        while branch is not None:
            branch.usage += billing_s
            branch = branch.above

    def decay(self, factor: float) -> None:
        """Multiply all usage by a factor."""
        for branch in (*self._accounts.values(), *self._users.values()):
            branch.usage *= factor

    def fair_tree(self) -> dict[tuple[str, str], float]:
        """The factor of each user, by (account, user): its rank from the end over the number of users.

        The tree is walked depth first, siblings by Level Fair Share, the highest first. The users of accounts
        with equal values compete with each other. Users with equal values have the same rank.
        """
        ranked: dict[_Branch, float] = {}
        remaining = users = len(self._users)

        def walk(branches: Iterable[_Branch], level_of: dict[_Branch, float], rank: int, tied: bool) -> int:
            nonlocal remaining
            ordered = sorted(branches, key=lambda branch: -level_of[branch])
            for _, tied_branches in groupby(ordered, key=level_of.__getitem__):
                group = list(tied_branches)
                accounts = [branch for branch in group if not branch.is_user]
                for branch in group:
                    if branch.is_user:
                        if not tied:
                            rank = remaining
                        ranked[branch] = rank / users
                        remaining -= 1
                        tied = True
                if accounts:
                    below = [branch for account in accounts for branch in account.competitors()]
                    rank = walk(below, {branch: branch.level() for branch in below}, rank, tied)
                tied = False
            return rank

        top = self._root.competitors()
        walk(top, {branch: branch.level() for branch in top}, users, False)
        return {key: ranked.get(branch, 0.0) for key, branch in self._users.items()}

    def classic(self, dampening: float = 1.0) -> dict[tuple[str, str], float]:
        """The factor 2 ^ -(effective usage / normalised share / dampening) of each user.

        The effective usage of a branch is its usage, and of what its account uses beyond it the part of the
        branch's share among its siblings'.
        """
        total = self._root.usage or 1.0
        factors = {}
        for key, branch in self._users.items():
            step: _Branch | None = branch
            path = list[tuple[_Branch, _Branch]]()
            while step is not None and (account := step.fair_share_account) is not None:
                if step.share is not None:
                    path.append((step, account))
                step = account
            share, effective = 1.0, 0.0
            for step, account in reversed(path):
                shares = sum(sibling.share or 0 for sibling in account.competitors())
                part = (step.share or 0) / max(1, shares)
                share *= part
                usage = step.usage / total
                effective = usage if account is self._root else usage + (effective - usage) * part
            factors[key] = 2.0 ** (-effective / share / dampening) if share else 0.0
        return factors
