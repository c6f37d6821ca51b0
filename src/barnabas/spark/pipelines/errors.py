"""Value: the errors of pipelines. Each message says what to do next.

BarnabasError
└─ PipelineError
   ├─ SpecError            the spec file is missing, is not YAML, or has an unknown or invalid field
   ├─ DefinitionError      a statement in a SQL file, or a call in a Python file, is not understood
   ├─ GraphError           a name is missing or defined twice, a cycle, a batch query where a stream is needed
   ├─ ChangeEventError     a change event has no key or no sequence
   ├─ PlanChangedError     a flow cannot continue from its checkpoint, because its query has changed
   ├─ FlowFailedError      a flow failed and was not started again
   └─ AlreadyRunningError  another process runs this pipeline
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class PipelineError(BarnabasError):
    """The base class of the errors of this package."""


class SpecError(PipelineError):
    """The spec file of a pipeline is missing or invalid."""


class DefinitionError(PipelineError):
    """A file of a pipeline defines something that cannot be run."""


class GraphError(PipelineError):
    """The datasets and flows of a pipeline do not fit together."""


class ChangeEventError(PipelineError):
    """A change event has no key or no sequence."""


class PlanChangedError(PipelineError):
    """A flow cannot continue from its checkpoint, because its query has changed."""


class FlowFailedError(PipelineError):
    """A flow failed and was not started again."""


class AlreadyRunningError(PipelineError):
    """Another process runs this pipeline."""
