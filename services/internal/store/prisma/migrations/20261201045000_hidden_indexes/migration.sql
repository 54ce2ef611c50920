-- Indexes that a hot statement, whose plan is kept for good, must not take for the primary key while the tables are
-- small: their predicates always hold, and only a statement that says so itself can use them.
DROP INDEX run_workflow;
CREATE INDEX run_workflow ON run (tenant_id, workflow_id, id) WHERE workflow_id > 0;

DROP INDEX lease_session;
CREATE INDEX lease_session ON lease (session_id) WHERE session_id > 0;
