"""Model of the pipeline: random orders of events over the product's use cases, checked by invariants.

system_under_test   all functions' use cases, from submit to publish, on fake queues and one backend
backends            what they store in: in-memory fakes, or Postgres and pgvector
fake_sqs            queues: at-least-once delivery in any order
site                the web site: pages change, and some answer 503 at first
crash_injector      kills the process before or after a chosen side effect
machine             hypothesis state machine: which events there are, and the settling after the last one
invariants          what must hold in end states, histories and while an example runs
message_locations   which jobs have a task or a result in a queue
mutations           safeguards taken out of the product; the model must find a violation for each

test_model.py runs it.
"""
