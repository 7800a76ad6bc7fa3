-- Every transition is written by this one statement: what includes it has a CTE `transition` of these columns.
-- A trigger computes the hash chain (job_history_chain), so the order of rows is the order of the chain.
-- fragment: insert_history
INSERT INTO job_history (job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms,
                         job_type, payload_digest)
SELECT job_id, attempt, from_status, to_status, cause, detail, tries, worker, elapsed_ms, job_type, payload_digest
FROM transition

-- Of a transition that no stage's result caused.
-- fragment: no_stage_work
NULL::int AS tries, NULL::text AS worker, NULL::int AS elapsed_ms
