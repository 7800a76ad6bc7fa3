-- What a transition's work used: fields of Spent in contracts/spent.py that are not 0. NULL where nothing was metered,
-- as by the release before, which writes no such column. The hash of a row does not cover it: that release checks the
-- chain too. The trigger `append_only` keeps it from being changed all the same.
ALTER TABLE job_history ADD COLUMN spent JSONB;
