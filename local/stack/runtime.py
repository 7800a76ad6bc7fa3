"""Runtime: the Lambda host, the REST front, event sources and schedules."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from local.backends.postgres_logins import login_url
from local.compute.host import HostOptions, LambdaHost, LogRecord, PoolLimits
from local.compute.invoke_api import InvokeApi
from local.compute.lambda_mappings import EventSourceMappings
from local.compute.process_stats import IdleCpu
from local.faults import activation
from local.faults.host import Proxies
from local.faults.poller import FaultySqsClient
from local.front.server import FrontOptions, RestFront
from local.template.spec import FunctionSpec, ScheduleSpec
from local.template.template import CloudSpec
from local.triggers.log_subscriptions import LogSubscriptions
from local.triggers.schedule import Schedule
from local.triggers.sqs import SqsEventSource
from local.triggers.sqs_polling import MAXIMUM, LongPolling

_SECRET_ARN: Final = "_SECRET_ARN"
_TRIGGER_GRACE_S: Final = 1.5
_LEAST_ENVIRONMENTS: Final = 4
_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """Addresses and names that functions are given."""

    aws_endpoint: str
    prompt_long_polls: bool
    database_url: str
    region: str
    account_id: str
    logs: Path
    port: int
    """Port of the gateway."""
    api_document: Path
    """OpenAPI document that the gateway shows."""
    eager_polling: bool = False
    """Whether event sources let no batch fill; only with `prompt_long_polls`."""
    pollers: int = 1
    """Receives of each event source beside each other; several let no batch fill either."""
    database_proxy: str = ""
    """Host and port that the services' logins connect to in place of the server's; the owner never does."""
    secrets: Mapping[str, str] | None = None
    """ARNs in Secrets Manager, by the ARN that the template has or the variable; None for literals."""
    renderer: str = ""
    """Browser of this machine for the Scraper's functions; "" for none."""


def make_host(
    logs: Path,
    region: str,
    account_id: str,
    on_log: Callable[[LogRecord], None] | None = None,
    *,
    cpu_share: bool = False,
) -> LambdaHost:
    """Return a host without functions, which can start before they are known."""
    faults = activation.control_of(logs.parent)
    if faults is not None:
        faults.reset(activation.first_rules())
    instrumented = activation.worker_variables(faults)
    return LambdaHost(
        [],
        region=region,
        log_dir=logs / "functions",
        account_id=account_id,
        extra_environment=instrumented,
        options=HostOptions(
            limits=PoolLimits(environments=environments()),
            on_log=on_log,
            cpu_share=cpu_share,
            path_prefix=(activation.INJECTION,) if instrumented else (),
        ),
    )


class Runtime:
    """All resources of the template, on a started host."""

    def __init__(
        self,
        host: LambdaHost,
        cloud: CloudSpec,
        ids: Mapping[str, str],
        arns: Mapping[str, str],
        config: RuntimeConfig,
    ) -> None:
        self._config = config
        self.host = host
        # The signer and the verifier get the same key; nothing else needs it.
        self._literals = {"STREAM_TOKEN_KEY": secrets.token_hex(32)}
        functions = self.configured(cloud.functions)
        # Event sources keep to what the machine can run, and may need more while invocations wait for others.
        sources = {source.function: source.maximum_concurrency or MAXIMUM for source in cloud.sources}
        host.add(functions, {name: max(most, environments()) for name, most in sources.items()})
        self._mappings = EventSourceMappings(host)
        self._invoke_api = InvokeApi(host, self._mappings)
        self.warnings = python_differences(functions)
        """Differences to AWS that a user should know; sentences."""
        self._front = self._make_front(cloud)
        timeouts = {function.name: float(function.timeout_s) for function in functions}
        eager = config.eager_polling or config.pollers > 1
        self._sources = [
            SqsEventSource(
                source,
                ids[source.queue],
                arns[source.queue],
                self.host,
                config.aws_endpoint,
                region=config.region,
                function_timeout_s=timeouts[source.function],
                prompt_long_polls=config.prompt_long_polls,
                client=_faulty(config, ids[source.queue]),
                idle=IdleCpu(),
                polling=LongPolling(0.0) if eager and config.prompt_long_polls else None,
                pollers=config.pollers if config.prompt_long_polls else 1,
                code_version=partial(self.host.code_version, source.function),
            )
            for source in cloud.sources
        ]
        self.schedules = {
            name: Schedule(schedule, self.host, region=config.region, account_id=config.account_id)
            for name, schedule in by_name(cloud.schedules).items()
        }
        """By name; their fault modes can be set."""
        self._subscriptions = LogSubscriptions(cloud.subscriptions, host, account_id=config.account_id)
        host.listen(self._subscriptions.on_log)
        control = activation.control_of(config.logs.parent)
        self._proxies = Proxies(control) if control else None
        self.gateway = ""
        self.invoke_endpoint = ""

    def configured(self, functions: Iterable[FunctionSpec]) -> list[FunctionSpec]:
        """Return functions with their secrets in plain text, or with the ARNs of what is stored."""
        stored = self._config.secrets
        # A program of this machine is no secret.
        renderer = {"RENDERER_URL": self._config.renderer} if self._config.renderer else {}
        if stored is not None:
            return [with_secrets(with_stored_secrets(each, stored), renderer) for each in functions]
        return [
            with_secrets(
                function, {**self._literals, **renderer, "DATABASE_URL": _login(function, self._config)}
            )
            for function in functions
        ]

    async def start(self) -> None:
        """Start everything; sets `gateway` and `invoke_endpoint`."""
        self.invoke_endpoint = await self._invoke_api.start()
        endpoints = {"AWS_ENDPOINT_URL": self._config.aws_endpoint}
        self.host.update_environment({**endpoints, "AWS_ENDPOINT_URL_LAMBDA": self.invoke_endpoint})
        if self._proxies is not None:
            self.host.add(await self._proxies.start(list(self.host.functions.values())))
        if self._front is not None:
            self.gateway = await self._front.start()
        for source in self._sources:
            await source.start()
            self._mappings.add(source)
        for schedule in self.schedules.values():
            await schedule.start()

    async def stop(self) -> None:
        """Stop in order: event sources first, the host last."""
        front = [self._front.stop()] if self._front is not None else []
        triggers: list[Awaitable[None]] = [source.stop(_TRIGGER_GRACE_S) for source in self._sources]
        triggers += [schedule.stop() for schedule in self.schedules.values()]
        await asyncio.gather(*front, *triggers, return_exceptions=True)
        await self._subscriptions.stop()
        await self._invoke_api.stop()
        if self._proxies is not None:
            await self._proxies.stop()

    def stats(self) -> dict[str, Any]:
        """Return counters of functions, event sources and schedules."""
        return {
            "functions": {name: asdict(stats) for name, stats in self.host.stats().items()},
            "sources": {
                source.spec.logical_id: {
                    "queue": source.spec.queue,
                    "function": source.spec.function,
                    "enabled": source.enabled,
                    "visibility_s": source.spec.visibility_s,
                    "visibility_parameter": source.spec.visibility_parameter,
                }
                | asdict(source.stats())
                for source in self._sources
            },
            "schedules": {name: schedule.stats() for name, schedule in self.schedules.items()},
        }

    def _make_front(self, cloud: CloudSpec) -> RestFront | None:
        if cloud.api is None:
            return None
        return RestFront(
            cloud.api,
            self.host,
            account_id=self._config.account_id,
            region=self._config.region,
            access_log=self._config.logs / "access.jsonl",
            port=self._config.port,
            options=FrontOptions(
                binary_media_types=cloud.binary_media_types,
                throttles=cloud.throttles,
                web_acl=cloud.web_acl,
                api_document=self._config.api_document,
            ),
        )


def _login(function: FunctionSpec, config: RuntimeConfig) -> str:
    """Return the connection string of the login whose secret the template names for the function."""
    arn = function.environment.get("DATABASE_URL" + _SECRET_ARN, "")
    return login_url(config.database_url, arn, config.database_proxy)


def with_secrets(function: FunctionSpec, literals: Mapping[str, str]) -> FunctionSpec:
    """Return the function with those of `literals` in plain text for which the template names a secret."""
    named = {name: value for name, value in literals.items() if name + _SECRET_ARN in function.environment}
    return replace(function, environment={**function.environment, **named})


def with_stored_secrets(function: FunctionSpec, stored: Mapping[str, str]) -> FunctionSpec:
    """Return the function with the ARNs of its secrets in Secrets Manager, as on AWS."""
    named = {
        name: stored.get(arn) or stored.get(name.removesuffix(_SECRET_ARN), arn)
        for name, arn in function.environment.items()
        if name.endswith(_SECRET_ARN)
    }
    return replace(function, environment={**function.environment, **named})


def _faulty(config: RuntimeConfig, queue_url: str) -> FaultySqsClient | None:
    """Return a client with injected faults where faults are enabled."""
    control = activation.control_of(config.logs.parent)
    if control is None:
        return None
    return FaultySqsClient(config.aws_endpoint, queue_url, region=config.region, control=control)


def python_differences(functions: Iterable[FunctionSpec], here: str = _PYTHON) -> list[str]:
    """Return a sentence when the template's Python is not the local one; else nothing."""
    other = sorted({function.runtime for function in functions} - {f"python{here}"})
    return [f"functions run on Python {here} here, {' and '.join(other)} on AWS"] if other else []


def by_name(schedules: Iterable[ScheduleSpec]) -> dict[str, ScheduleSpec]:
    """Return schedules by rule name, with the function's name after a dot if a rule has several targets."""
    given = list(schedules)
    rules = Counter(each.logical_id for each in given)
    return {
        each.logical_id if rules[each.logical_id] == 1 else f"{each.logical_id}.{each.function}": each
        for each in given
    }


def environments() -> int:
    """Return the limit of environments per function: more than the cores can run only cost memory."""
    return max(_LEAST_ENVIRONMENTS, (os.cpu_count() or 1) + 2)
