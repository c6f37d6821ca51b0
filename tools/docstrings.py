"""Shell: prints docstrings of attributes that are drawn at random, to be read by a person.

`python -m tools.docstrings --seed 7` prints 80 of them, each with its class, its attribute and its place. A docstring
of an attribute is to be a sentence about that attribute, which can be understood without the rest of the file.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator, Sequence

from tools.order import Module, read_tree


def attribute_docstrings(module: Module) -> Iterator[tuple[str, str, str]]:
    """The place, the name and the docstring of each attribute and constant of a module that has one."""
    for node in module.nodes:
        for statement, after in zip(*_pairs(node), strict=True):
            if (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
                )
                names = [ast.unparse(target) for target in targets if target is not None]
                if names and isinstance(statement, ast.Assign | ast.AnnAssign):
                    owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                    text = " ".join(after.value.value.split())
                    yield f"{module.path}:{statement.lineno}", f"{owner}{names[0].removeprefix('self.')}", text


def _pairs(node: ast.AST) -> tuple[Sequence[ast.stmt], Sequence[ast.stmt]]:
    """The statements of a body, and the statement after each of them."""
    body = getattr(node, "body", None)
    return (body[:-1], body[1:]) if isinstance(body, list) else ((), ())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the docstrings that the seed draws."""
    parser = argparse.ArgumentParser(prog="python -m tools.docstrings")
    parser.add_argument("--seed", type=int, required=True, help="draws the same docstrings each time")
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--within", default="src/", help="draw from the files whose path begins so")
    options = parser.parse_args(arguments)
    found = [
        row
        for module in read_tree().source
        if module.path.startswith(options.within)
        for row in attribute_docstrings(module)
    ]
    print(f"{len(found):,} docstrings of attributes")
    for place, name, text in sorted(random.Random(options.seed).sample(found, min(options.count, len(found)))):
        print(f"{place}\n    {name}: {text}")


if __name__ == "__main__":
    main()
