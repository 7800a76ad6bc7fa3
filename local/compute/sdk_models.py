"""Import of the AWS SDK's service models, once in the process that environments are forked from.

The import itself has the effect: each environment that makes a client finds the models in memory that it
shares with the others, instead of parsing megabytes of JSON. Nothing of a function's own is decided
here: region, credentials and endpoints are looked up when a client is made.
"""

from __future__ import annotations

import boto3

_SERVICES = ("sqs", "s3", "dynamodb", "lambda", "secretsmanager")
_MODELS = ("service-2", "endpoint-rule-set-1")
_SHARED = ("endpoints", "sdk-default-configuration", "_retry", "partitions")

boto3.setup_default_session()
_session = boto3.DEFAULT_SESSION
if _session is not None:
    # boto3 offers no other way to it.
    _loader = _session._session.get_component("data_loader")
    for _service in _SERVICES:
        for _model in _MODELS:
            _loader.load_service_model(_service, _model)
    for _name in _SHARED:
        _loader.load_data(_name)
