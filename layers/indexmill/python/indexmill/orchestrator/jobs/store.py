"""Job store port: transactions in which use cases read and write rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from indexmill.orchestrator.actions.ports import ActionsTx
from indexmill.orchestrator.admission.ports import AdmissionTx, DependenciesTx
from indexmill.orchestrator.crawling.ports import CrawlsTx
from indexmill.orchestrator.outbox.ports import Outbox
from indexmill.orchestrator.queries.ports import QueriesTx
from indexmill.orchestrator.results.ports import DeadLetter, ResultsTx
from indexmill.orchestrator.submission.ports import SubmissionTx
from indexmill.orchestrator.sweeper.ports import CountsTx

T = TypeVar("T")


class JobsTx(
    SubmissionTx,
    AdmissionTx,
    DependenciesTx,
    QueriesTx,
    ActionsTx,
    ResultsTx,
    CrawlsTx,
    CountsTx,
    Protocol,
):
    """Row operations of all acts, in one transaction. They decide nothing; each is one statement.

    Rows that are locked stay locked until the commit. The lock order is in the Postgres adapter.
    """


class RunAgain(Exception):
    """Raised by work that met another transaction's change: nothing is written, and it runs from its top."""


class JobStore(Outbox, Protocol):
    """The only writer of job state. All calls raise TransientError(database_unavailable)."""

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        """Run `work` in one transaction and return what it returns; nothing is written when it raises.

        It may run again after a lost connection, a deadlock, a unique violation or RunAgain, also when the
        first commit did happen: apart from `tx` it must have no effects, and make its ids beforehand.
        """
        ...

    def read(self, work: Callable[[JobsTx], T]) -> T:
        """Run reads that need no transaction."""
        ...

    def record_dead_letter(self, letter: DeadLetter) -> bool:
        """Keep a message that could not be handled; return whether an earlier delivery had not.

        One that is kept already stays as it is.
        """
        ...
