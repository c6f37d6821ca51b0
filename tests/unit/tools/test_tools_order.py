"""The counts of `tools/order.py` find what they name, and nothing else."""

import configparser

from tools import order


def found(
    rule: str, *sources: str, tests: tuple[str, ...] = (), contracts: str = "", titles: tuple[str, ...] = ()
) -> list[str]:
    """What the rule's count says of these modules (`src/barnabas/m0.py` and so on), tests and commits."""
    parser = configparser.ConfigParser()
    parser.read_string(contracts)
    tree = order.Tree(
        [order.Module(f"src/barnabas/m{number}.py", source) for number, source in enumerate(sources)],
        [order.Module(f"tests/t{number}.py", source) for number, source in enumerate(tests)],
        parser,
        [(f"c{number}", title) for number, title in enumerate(titles)],
    )
    (count,) = [row.count for row in order.RULES if row.name == rule]
    return [f"{place.where} {place.what}" for place in count(tree)]


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings() -> None:
    source = '''"""A module
of two lines."""

# a comment
limit = 7  # counts
"""Of an attribute."""
text = """three
lines
"""


def f() -> str:
    """A function."""
    return (
        # in brackets

        text
    )
'''
    assert order.Module("m.py", source).code_lines() == 1 + 3 + 1 + 3


def test_a_public_class_name_that_occurs_twice_is_found() -> None:
    twice = found(
        "class-names", "class Row: ...\nclass _Hidden: ...", "class Row: ...\nclass _Hidden: ...", "class One: ..."
    )
    assert twice == ["src/barnabas/m0.py:1 Row, also src/barnabas/m1.py:1"]


def test_long_functions_and_many_parameters_are_found() -> None:
    body = "\n".join(["    pass"] * 70)
    assert found("long-functions", f"def f():\n{body}") == ["src/barnabas/m0.py:1 f: 71 lines"]
    assert found("long-functions", f"def f():\n{body[9:]}") == []
    assert found("parameters", "def f(a, b, c, /, d, e, *, g, h, i): ...") == ["src/barnabas/m0.py:1 f: 8 parameters"]
    assert found("parameters", "def f(a, b, c, d, e, g, h, *rest): ...") == []


def test_a_suppression_needs_a_reason() -> None:
    handlers = "try: ...\n{}\n    pass"
    assert found("broad-excepts", handlers.format("except Exception:  # noqa: BLE001")) != []
    assert found("broad-excepts", handlers.format("except (OSError, Exception):")) != []
    assert found("broad-excepts", handlers.format("except Exception:  # noqa: BLE001 - the thread reports it")) == []
    assert found("broad-excepts", "try: ...\nexcept BaseException:\n    f()\n    raise") == []
    assert found("type-ignores", "x = 1  # type: ignore[misc]") != []
    assert found("type-ignores", "x = 1  # type: ignore[misc]  # numba has no types") == []


def test_an_import_of_a_higher_floor_or_a_neighbour_is_found() -> None:
    layers = "[contract]\ntype = layers\nlayers =\n    m0\n    m1 | m2\ncontainers = barnabas"
    up, side, down = "from barnabas import m0", "import barnabas.m1.x", "from barnabas.m2 import y"
    assert found("upward-imports", down, "", side, contracts=layers) == [
        "src/barnabas/m2.py:1 barnabas.m2 imports barnabas.m1.x"
    ]
    assert len(found("upward-imports", "", up, up, contracts=layers)) == 2


def test_titles_of_commits_name_their_package_once() -> None:
    assert found("commit-titles", titles=("raft: a vote is counted once", "cli, docs: `why` is a verb")) == []
    assert found("commit-titles", titles=("mend the vote",)) == ["c0 no package and colon: mend the vote"]
    assert len(found("commit-titles", titles=("raft: mended", "raft: mended"))) == 2
    assert found("commit-titles", titles=("raft: " + "x" * 70,))[0].startswith("c0 76 characters")


def test_a_sleep_of_a_test_needs_a_reason() -> None:
    assert found("sleeps", tests=("time.sleep(0.1)\nawait asyncio.sleep(0)",)) == [
        "tests/t0.py:1 sleep without a reason"
    ]
    assert found("sleeps", tests=("time.sleep(0.1)  # sleep: another process starts",)) == []
