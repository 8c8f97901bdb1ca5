"""Damaged files, as tests of what programs do with them make them."""

import random

__all__ = ["ODD", "damaged"]

ODD = [
    "", "0", "-1", "1e999", "1e-320", "nan", "9" * 25, "1e30", "0x" + "f" * 40, "true", "null", "[]", "{}",
    "&a", "*a", "\x1b[31m", "\ud7ff", "=1+1", "x" * 300, "!!bool 1", "!!float ''", "-0.0", "2020-13-45",
    "1:30", "'", '"', ",", "\n", "\0", ": ", "- ", "\t",
]  # fmt: skip


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with one to three changes: a number or a word replaced, bytes changed, lines moved."""
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(6)
        at, to = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        lines = content.split(b"\n")
        if kind == 0:
            content = content[:at] + rng.choice(ODD).encode() + content[min(at + rng.randint(0, 6), to) :]
        elif kind == 1:
            words = [i for i, c in enumerate(content) if c in b":,= "] or [0]
            start = rng.choice(words) + 1
            end = start + next((i for i, c in enumerate(content[start:]) if c in b",}]\n"), 0)
            content = (
                content[:start]
                + b" " * (content[start - 1 : start] == b":")
                + (rng.choice(ODD).encode() + content[end:])
            )
        elif kind == 2:
            content = content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        elif kind == 3:
            content = content[:at] + content[min(to, at + 40) :]
        elif kind == 4:
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            content = b"\n".join(lines)
        else:
            rng.shuffle(lines)
            content = b"\n".join(lines)
    return content
