"""Stack: the whole cloud on one machine, as one object: start, run, stop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from secrets import token_hex
from typing import Any, Final

from local.backends.ministack import MiniStack
from local.backends.postgres_logins import secret_parameters, secret_texts
from local.compute.host import LambdaHost
from local.metrics.queues import Queues
from local.metrics.telemetry import Telemetry
from local.stack.control import ControlApi
from local.stack.function_errors import FunctionErrors
from local.stack.kept_port import KeptPort
from local.stack.options import StackOptions
from local.stack.preparation import Preparation
from local.stack.release import Releases, Target
from local.stack.runtime import Runtime, RuntimeConfig, make_host
from local.stack.services import Aws, Postgres, RestartLimitReached, Service, ServiceMonitor
from local.stack.stand_ins import StandIns
from local.stack.state import StateFolder
from local.template.template import Template

ACCOUNT_ID: Final = "000000000000"
REGION: Final = "eu-west-1"
_HOST: Final = "functions"
_STOP_S: Final = 8.0


class StackFailed(RuntimeError):
    """Raised when the stack could not start or continue; the text is a sentence with the next step."""


@dataclass(frozen=True, slots=True)
class _Base:
    """Services whose addresses the functions need."""

    postgres: Postgres
    aws: Aws
    host: LambdaHost


class Stack:
    """A running stack. All methods belong to one event loop."""

    def __init__(self, options: StackOptions, report: Callable[[str], None]) -> None:
        self._options = options
        self._report = report
        self._began = options.began if options.began is not None else time.monotonic()
        self._state = StateFolder(options.state)
        self._monitor = ServiceMonitor(report, self._record)
        self._services: list[Service] = []
        self._postgres: Postgres | None = None
        self._telemetry = Telemetry()
        self._errors = FunctionErrors(report)
        self._control = ControlApi(self.status, self._telemetry, self._errors)
        self._template: Template | None = None
        self._host: LambdaHost | None = None
        self._runtime: Runtime | None = None
        self._owned = False
        self._ports: dict[str, KeptPort] = {}
        """Of the services that programs beside the stack connect to."""
        self.info: dict[str, Any] = {}
        """Addresses and keys of the stack, once started."""

    async def start(self) -> dict[str, Any]:
        """Start everything; returns addresses and keys.

        Raises StackFailed, AlreadyRunning, and the errors of its parts; call `stop` in any case.
        """
        if not self._options.ministack_python.exists():
            raise StackFailed(f"{self._options.ministack_python} is missing; run: make setup")
        self._state.acquire()
        self._owned = True
        if ended := self._state.reap():
            self._report(f"ended {len(ended)} processes of a stack that was killed")
        keys = self._state.keys()
        stand_ins = StandIns(self._state, self._options.overrides, self._options.site_root)
        self._services += stand_ins.services
        self._ports = {
            "Postgres": KeptPort(self._state, "Postgres", self._options.postgres_port),
            "AWS endpoint": KeptPort(self._state, "AWS endpoint"),
        }
        self._postgres = Postgres(self._state.path, self._ports["Postgres"].number)
        aws = Aws(
            MiniStack(
                self._state.aws,
                self._options.ministack_python,
                account_id=ACCOUNT_ID,
                region=REGION,
                port=self._ports["AWS endpoint"].number,
                persist=self._options.keep_data,
            )
        )
        self._services += [self._postgres, aws]
        self._host = make_host(
            self._state.logs, REGION, ACCOUNT_ID, self._telemetry.on_log, cpu_share=self._options.cpu_share
        )
        self._host.listen(self._errors.on_log)
        base = _Base(self._postgres, aws, self._host)
        await self._start_parts(base, stand_ins.parameters(keys) | secret_parameters(REGION, ACCOUNT_ID))
        for service in self._services:
            after = partial(self._create_resources, aws) if service is aws else None
            self._monitor.watch(service, after)
        control = await self._control.start()
        served = {**stand_ins.addresses, **asdict(keys)}
        self.info |= {"control": control, **served, "state": str(self._state.path)}
        self.info |= {"pid": os.getpid(), "ready_s": round(time.monotonic() - self._began, 2)}
        self._state.write_info(self.info)
        return self.info

    async def run(self) -> None:
        """Monitor a started stack until cancelled. Raises StackFailed when a service ends too often."""
        try:
            await self._monitor.wait_for_failure()
        except RestartLimitReached as error:
            raise StackFailed(f"{error}; see {self._state.logs}") from error

    async def stop(self) -> None:
        """Stop everything within seconds; processes that do not end in time are killed."""
        if not self._owned:
            return
        await self._monitor.stop()
        try:
            async with asyncio.timeout(_STOP_S):
                if self._runtime is not None:
                    await self._runtime.stop()
                if self._host is not None:
                    await self._host.stop()
                await self._control.stop()
                await asyncio.gather(*(service.stop() for service in self._services), return_exceptions=True)
        except TimeoutError:
            self._report("some processes did not end in time and are killed")
        if not self._options.keep_data and self._postgres is not None:
            await self._postgres.delete()
        await asyncio.to_thread(self._state.reap)
        self._state.release()
        if not self._options.keep_data:
            self._state.delete()

    def status(self) -> dict[str, Any]:
        """Return process ids and counters for the control API."""
        services = {
            service.name: {
                "pid": service.pid,
                "restarts": self._monitor.restarts.get(service.name, 0),
                "serving": service.pid is not None and service.name not in self._monitor.down,
            }
            for service in self._services
        }
        return {
            "pid": os.getpid(),
            "up_s": round(time.monotonic() - self._began, 1),
            "services": services,
            **(self._runtime.stats() if self._runtime is not None else {}),
        }

    async def _start_parts(self, base: _Base, automatic: Mapping[str, str]) -> None:
        """Start all services and, as soon as its inputs are known, the runtime."""
        preparation = Preparation(self._state.logs / "preparation.log")
        try:
            await preparation.start()
            async with asyncio.TaskGroup() as group:
                started = {each.name: group.create_task(self._start_service(each)) for each in self._services}
                started[_HOST] = group.create_task(base.host.start())
                group.create_task(self._prepare(preparation, base, automatic, started))
        except ExceptionGroup as errors:
            # Only the first error is reported.
            raise _first(errors) from None
        finally:
            await preparation.stop()

    async def _start_service(self, service: Service) -> None:
        await service.start()
        self._record()

    async def _prepare(
        self,
        preparation: Preparation,
        base: _Base,
        automatic: Mapping[str, str],
        started: Mapping[str, asyncio.Task[None]],
    ) -> None:
        options = self._options
        translated, parameters = await preparation.translate(
            options.template, automatic, options.overrides, REGION
        )
        template = self._template = Template(
            translated, parameters, folder=options.template.parent, region=REGION, account_id=ACCOUNT_ID
        )
        template.check_visibility()
        await started[base.aws.name]
        ids, arns = await preparation.create_resources(base.aws.endpoint, template.stateful(), REGION)
        base.aws.save()
        await started[base.postgres.name]
        secrets = await self._store_secrets(preparation, base) if options.secrets_manager else None
        gateway = KeptPort(self._state, "gateway", options.port)
        config = RuntimeConfig(
            aws_endpoint=base.aws.endpoint,
            prompt_long_polls=base.aws.prompt_long_polls,
            database_url=base.postgres.url,
            region=REGION,
            account_id=ACCOUNT_ID,
            logs=self._state.logs,
            port=gateway.number,
            api_document=options.template.parent / "stack" / "openapi.yaml",
            eager_polling=options.eager_polling,
            pollers=options.pollers,
            database_proxy=options.database_proxy,
            secrets=secrets,
            renderer=options.renderer,
        )
        await started[_HOST]
        runtime = self._runtime = Runtime(base.host, template.cloud(ids, arns), ids, arns, config)
        migrations, answer_s = options.template.parent / "sql", float(parameters["DatabaseAnswerSeconds"])
        await asyncio.gather(preparation.migrate(base.postgres.url, migrations, answer_s), runtime.start())
        self._record()
        self._telemetry.watch(base.host, Queues(base.aws.endpoint, ids, region=REGION))
        self._control.schedules = runtime.schedules
        self._allow_releases(base, runtime, automatic)
        self.info = {
            "gateway": gateway.keep(runtime.gateway),
            "database_url": self._ports["Postgres"].keep(base.postgres.url),
            "aws_endpoint": self._ports["AWS endpoint"].keep(base.aws.endpoint),
            "invoke_endpoint": runtime.invoke_endpoint,
            "region": REGION,
            "account_id": ACCOUNT_ID,
            "parameters": dict(parameters),
            "resources": dict(ids),
            "warnings": [
                *runtime.warnings,
                *(text for port in (gateway, *self._ports.values()) for text in port.warnings),
            ],
        }

    async def _store_secrets(self, preparation: Preparation, base: _Base) -> dict[str, str]:
        arns = secret_parameters(REGION, ACCOUNT_ID).values()
        texts = secret_texts(base.postgres.url, arns, self._options.database_proxy)
        texts["STREAM_TOKEN_KEY"] = token_hex(32)
        stored = await preparation.store_secrets(base.aws.endpoint, texts, REGION)
        base.aws.save()
        return stored

    def _allow_releases(self, base: _Base, runtime: Runtime, automatic: Mapping[str, str]) -> None:
        target = Target(
            host=base.host,
            runtime=runtime,
            database_url=base.postgres.url,
            aws_endpoint=base.aws.endpoint,
            automatic=automatic,
            overrides=self._options.overrides,
            region=REGION,
            account_id=ACCOUNT_ID,
            log=self._state.logs / "preparation.log",
        )
        self._control.allow_releases(Releases(target).release, self._state.keys().ops_key)

    async def _create_resources(self, aws: Aws) -> None:
        """Create queues, bucket and table again, under their fixed names, after a restart of AWS."""
        if self._template is None:
            return
        preparation = Preparation(self._state.logs / "preparation.log")
        try:
            await preparation.start()
            await preparation.create_resources(aws.endpoint, self._template.stateful(), REGION)
            aws.save()
        finally:
            await preparation.stop()

    def _record(self) -> None:
        """Record the process ids, so that they can be ended after a kill."""
        processes = {service.name: service.pid for service in self._services}
        host = self._host.supervisor_pid if self._host is not None else None
        self._state.record({**processes, _HOST: host})


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first plain exception of a group."""
    inner = errors.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
