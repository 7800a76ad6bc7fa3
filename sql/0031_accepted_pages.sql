-- Doubts despite which a job's page is read (`accept` of its submit), in order; NULL for none.
ALTER TABLE jobs ADD COLUMN accept TEXT[];
