"""Machine: a chain of transforms: which records each one gets, in which order the records leave, and which ones fail.

A predicate divides a batch: the records that match are transformed together, the others stay. If both have the same
schemas afterwards, they become one batch again in their old order; a key or value that is null in all records of one
side takes the schema of the other side. Otherwise the batch leaves as several, each a run of records of one schema.

If a transform fails and failures are tolerated, the batch is halved until the records that fail are alone. These are
reported with their row numbers, and the others go on, as Connect's RetryWithToleranceOperator does with single records.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
from msgspec import Struct

from barnabas.spark.connectors.transforms.definitions import Definition
from barnabas.spark.connectors.transforms.errors import (
    RowFailure,
    TransformConfigError,
    TransformDataError,
    TransformPlanError,
)
from barnabas.spark.connectors.transforms.plugins import (
    PREDICATE_BUILDERS,
    build_transform,
    predicate_classes,
    transform_classes,
)
from barnabas.spark.connectors.transforms.routing import Predicate
from barnabas.spark.connectors.transforms.settings import Settings, Transform, boolean

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

ROW: Final = "__row"
"""The column that has the number of each record in the batch given to the chain, while the chain works."""


class ChainStep(Struct, frozen=True):
    """A transform of the chain, and the predicates that a record must match to be transformed."""

    label: str
    class_name: str
    transform: Transform
    conditions: tuple[Predicate, ...] = ()


class Chain:
    """Transforms that are applied one after the other."""

    def __init__(self, steps: Iterable[ChainStep]) -> None:
        self.steps = tuple(steps)

    def __bool__(self) -> bool:
        return bool(self.steps)

    def apply(self, batch: Any, failures: list[RowFailure] | None = None) -> list[Any]:
        """The records of a batch (`records.py` has its columns) after all transforms, in the order of the batch.

        With a list `failures` (`errors.tolerance=all`), records that fail are left out and reported in the list.
        Without it, the first one raises TransformDataError or TransformPlanError.
        """
        if not self.steps or not batch.num_rows:
            return [batch] if batch.num_rows else []
        rows = pa.array(range(batch.num_rows), pa.int64())
        batches = [
            pa.RecordBatch.from_arrays([*batch.columns, rows], schema=batch.schema.append(pa.field(ROW, pa.int64())))
        ]
        for step in self.steps:
            found = [each for one in batches for each in _apply_step(step, one, failures)]
            batches = [each for each in found if each.num_rows]
        if failures:
            failures.sort(key=lambda failure: failure.row)
        return [each.drop_columns([ROW]) for each in batches]


def _apply_step(step: ChainStep, batch: Any, failures: list[RowFailure] | None) -> list[Any]:
    mask = None
    for condition in step.conditions:
        found = condition(batch)
        mask = found if mask is None else _pc.and_(mask, found)
    if mask is None or _pc.all(mask).as_py():
        return list(_run(step, batch, failures))
    if not _pc.any(mask).as_py():
        return [batch]
    chosen = list(_run(step, batch.filter(mask), failures))
    return _merge([*(each for each in chosen if each.num_rows), batch.filter(_pc.invert(mask))])


def _run(step: ChainStep, batch: Any, failures: list[RowFailure] | None) -> Iterator[Any]:
    try:
        yield step.transform(batch)
        return
    except (TransformDataError, TransformPlanError, pa.ArrowInvalid) as error:
        if batch.num_rows == 1:
            if failures is None:
                raise _placed(step, batch, error) from None
            failures.append(_failure(step, batch, error))
            return
    half = batch.num_rows // 2
    halves: list[Any] = []
    for part in (batch.slice(0, half), batch.slice(half)):
        halves += [each for each in _run(step, part, failures) if each.num_rows]
    yield from _merge(halves)


def _placed(step: ChainStep, batch: Any, error: Exception) -> Exception:
    where = f"row {batch.column(ROW)[0].as_py()} of the batch"
    names = batch.schema.names
    if all(name in names for name in ("topic", "partition", "offset")):
        topic, partition, offset = (batch.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
        where = f"offset {offset} of {topic}-{partition}"
    kind = TransformPlanError if isinstance(error, TransformPlanError) else TransformDataError
    return kind(
        f"transforms.{step.label} cannot transform the record at {where}: {error}. With errors.tolerance=all such "
        "records are left out"
    )


def _failure(step: ChainStep, batch: Any, error: Exception) -> RowFailure:
    row = batch.column(ROW)[0].as_py()
    return RowFailure(
        row, step.label, step.class_name, f"{type(error).__module__}.{type(error).__qualname__}", str(error)
    )


def _merge(batches: list[Any]) -> list[Any]:
    """The batches as one, in the order of their rows, or as runs of rows if their schemas differ."""
    if len(batches) < 2:
        return batches
    batches = _one_schema(batches)
    if all(each.schema.equals(batches[0].schema, check_metadata=True) for each in batches[1:]):
        table = pa.Table.from_batches(batches)
        rows = table.column(ROW)
        if not _ascending(batches):
            table = table.take(_pc.sort_indices(rows))
        return list(table.combine_chunks().to_batches())
    return _runs(batches)


def _ascending(batches: list[Any]) -> bool:
    return all(a.column(ROW)[-1].as_py() < b.column(ROW)[0].as_py() for a, b in pairwise(batches))


def _one_schema(batches: list[Any]) -> list[Any]:
    """The batches with equal fields where only null cells stand in the way."""
    names = batches[0].schema.names
    if any(each.schema.names != names for each in batches):
        return batches
    for index, name in enumerate(names):
        filled = [each for each in batches if each.column(index).null_count < each.num_rows]
        fields = [each.schema.field(index) for each in (filled or batches[:1])]
        if all(field.equals(fields[0], check_metadata=True) for field in fields[1:]):
            batches = [_nulls_of(each, index, fields[0]) for each in batches]
        else:
            assert name != ROW
    return batches


def _nulls_of(batch: Any, index: int, field: Any) -> Any:
    if batch.schema.field(index).equals(field, check_metadata=True):
        return batch
    arrays = list(batch.columns)
    arrays[index] = pa.nulls(batch.num_rows, field.type)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema.set(index, field))


def _runs(batches: list[Any]) -> list[Any]:
    """Slices of the batches, so that the rows ascend from slice to slice."""
    owners = sorted((row, owner) for owner, each in enumerate(batches) for row in each.column(ROW).to_pylist())
    taken = [0] * len(batches)
    result: list[Any] = []
    at = 0
    while at < len(owners):
        owner, end = owners[at][1], at
        while end < len(owners) and owners[end][1] == owner:
            end += 1
        result.append(batches[owner].slice(taken[owner], end - at))
        taken[owner] += end - at
        at = end
    return result


def compile_chain(config: Mapping[str, str]) -> Chain:
    """The chain that the keys `transforms`, `transforms.*`, `predicates` and `predicates.*` configure, as in Connect.

    Other keys are ignored. The case of keys does not matter, because Spark gives options in lower case. Raises
    TransformConfigError for anything unknown, missing or not allowed.
    """
    texts = {key.lower(): text for key, text in config.items()}
    predicates = {label.lower(): _predicate(label, texts) for label in _labels(texts, "predicates")}
    steps = [_step(label, texts, predicates) for label in _labels(texts, "transforms")]
    return Chain(steps)


def _labels(texts: Mapping[str, str], key: str) -> list[str]:
    """The labels in a list, after the check that every key of this kind belongs to one of them."""
    labels = [label.strip() for label in texts.get(key, "").split(",") if label.strip()]
    known = {label.lower() for label in labels}
    if len(known) < len(labels):
        raise TransformConfigError(f"{key} has a name twice: {texts[key]!r}; each one must have a name of its own")
    for name in texts:
        if name.startswith(f"{key}.") and not any(name.startswith(f"{key}.{label}.") for label in known):
            raise TransformConfigError(
                f"{name} belongs to no name in {key}={texts.get(key, '')!r}; add it there or remove it"
            )
    return labels


def _own(label: str, texts: Mapping[str, str], key: str) -> dict[str, str]:
    prefix = f"{key}.{label.lower()}."
    return {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)}


def _definition(prefix: str, own: dict[str, str], known: Mapping[str, Definition], kind: str) -> tuple[str, Definition]:
    name = own.pop("type", "").strip()
    if not name:
        raise TransformConfigError(f"{prefix}type is missing; it must be the class of a {kind}")
    definition = known.get(name)
    if definition is None:
        short = [each for each in known if "." not in each]
        near = difflib.get_close_matches(name.rpartition(".")[2], short, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"the classes are {', '.join(sorted(short))}"
        raise TransformConfigError(f"{prefix}type names no {kind}, got {name!r}: {hint}")
    return name, definition


def _predicate(label: str, texts: Mapping[str, str]) -> Predicate:
    prefix, own = f"predicates.{label}.", _own(label, texts, "predicates")
    _, definition = _definition(prefix, own, predicate_classes(), "predicate")
    return PREDICATE_BUILDERS[definition.name](Settings(prefix, definition, own))


def _step(label: str, texts: Mapping[str, str], predicates: Mapping[str, Predicate]) -> ChainStep:
    prefix, own = f"transforms.{label}.", _own(label, texts, "transforms")
    wanted, negate = own.pop("predicate", "").strip(), own.pop("negate", None)
    class_name, definition = _definition(prefix, own, transform_classes(), "transform")
    transform = build_transform(class_name, definition, Settings(prefix, definition, own))
    conditions: list[Predicate] = []
    if wanted:
        predicate = predicates.get(wanted.lower())
        if predicate is None:
            raise TransformConfigError(
                f"{prefix}predicate names {wanted!r}, which is not in the list predicates; add it there"
            )
        conditions.append(_negated(predicate) if boolean(prefix + "negate", negate or "false") else predicate)
    elif negate is not None:
        raise TransformConfigError(f"{prefix}negate has no effect without {prefix}predicate; add it or remove negate")
    return ChainStep(label, class_name, transform, tuple(conditions))


def _negated(predicate: Predicate) -> Predicate:
    return lambda batch: _pc.invert(predicate(batch))
