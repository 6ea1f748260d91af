-- The first version of the schema, which exists. `{schema}` is replaced by its name.
--
-- One row per key, with the key's bytes as they are on every engine: `t/<tenant>/...` for a tenant
-- and `op/...` for the operator. Clients call the functions and read no table.

-- What the operator declares about this store, and the version of its tables and functions.
CREATE TABLE {schema}.meta (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    version integer NOT NULL,
    -- `replicated`: promotion loses no acknowledged commit, so it raises no fence floor.
    durability text NOT NULL DEFAULT 'local' CHECK (durability IN ('local', 'replicated')),
    synchronous_commit text NOT NULL DEFAULT 'on'
        CHECK (synchronous_commit IN ('off', 'local', 'remote_write', 'on', 'remote_apply'))
);

-- Not cached: a session with numbers in store would give a key a lower revision than its last one.
CREATE SEQUENCE {schema}.revisions AS bigint CACHE 1;

-- Most writes replace a value of about the same size. The free space keeps the new version on the
-- page of the old one, and since no index is on a changing column, no index entry is written.
CREATE TABLE {schema}.entry (
    key bytea PRIMARY KEY,
    revision bigint NOT NULL,
    value bytea NOT NULL
) WITH (fillfactor = 70);

-- Values are small and do not compress.
ALTER TABLE {schema}.entry ALTER COLUMN value SET STORAGE EXTERNAL;

-- Emptied by crash recovery and by promotion of a standby, kept by a clean restart. A missing row
-- means that the last commits may be lost.
CREATE UNLOGGED TABLE {schema}.incarnation (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id bigint NOT NULL,
    -- A dump that was restored on another server carries the row along.
    system_identifier bigint NOT NULL
);

CREATE FUNCTION {schema}.version() RETURNS integer
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT m.version FROM {schema}.meta m $$;

-- Applies each transaction of a batch whose compares hold. The transactions are independent: none
-- writes a key that another compares or writes.
--
-- Every lock is taken in a statement before the one that compares. In READ COMMITTED each statement
-- of a VOLATILE function has its own snapshot, so the compares see everything that was committed
-- before the last lock was granted.
--
-- Returns one row per failed compare, (1, its place, NULL, revision, value), and per range that is
-- not empty, (2, its place, key, revision, value); then (0, NULL, NULL, revision of the batch,
-- NULL). A single row (3, ...) means that nothing was applied because the incarnation is another.
CREATE FUNCTION {schema}.commit(
    p_incarnation bigint,
    p_locks bigint[],
    p_exclusive boolean[],
    p_locks_table boolean,
    p_anchors bytea[],
    p_compare_txn integer[],
    p_compare_key bytea[],
    p_compare_revision bigint[],
    p_compare_value bytea[],
    p_compare_reads boolean[],
    p_range_txn integer[],
    p_range_start bytea[],
    p_range_end bytea[],
    p_put_txn integer[],
    p_put_key bytea[],
    p_put_value bytea[],
    p_delete_txn integer[],
    p_delete_key bytea[]
) RETURNS TABLE (part integer, place integer, key bytea, revision bigint, value bytea)
LANGUAGE plpgsql VOLATILE
-- A plan made while the table was small would scan it for as long as the session lives. Compiling
-- a statement takes longer than executing it.
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET lock_timeout = '5s'
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_durable text;
    v_broken integer[] := '{}';
    v_revision bigint;
    v_found record;
BEGIN
    -- Another isolation level keeps the snapshot of the first statement, before the locks.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation level is not read committed' USING ERRCODE = 'GS001';
    END IF;
    IF p_locks_table THEN
        LOCK TABLE {schema}.entry IN EXCLUSIVE MODE;
    END IF;
    -- The caller sorts the locks, so that no two calls wait for each other.
    FOR i IN 1 .. cardinality(p_locks) LOOP
        IF p_exclusive[i] THEN
            PERFORM pg_advisory_xact_lock(p_locks[i]);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(p_locks[i]);
        END IF;
    END LOOP;
    IF cardinality(p_anchors) > 0 THEN
        PERFORM 1 FROM {schema}.entry e WHERE e.key = ANY (p_anchors)
            ORDER BY e.key FOR NO KEY UPDATE;
    END IF;

    SELECT m.synchronous_commit INTO v_durable
        FROM {schema}.incarnation i CROSS JOIN {schema}.meta m
        WHERE i.is_only AND m.is_only AND i.id = p_incarnation;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 3, NULL::integer, NULL::bytea, NULL::bigint, NULL::bytea;
        RETURN;
    END IF;
    -- Until the end of the transaction. A SET of the function would end before the commit.
    PERFORM set_config('synchronous_commit', v_durable, true);

    FOR v_found IN
        SELECT c.txn, c.place, c.reads, e.revision, e.value
        FROM unnest(p_compare_txn, p_compare_key, p_compare_revision, p_compare_value,
                    p_compare_reads)
            WITH ORDINALITY AS c(txn, key, revision, value, reads, place)
        LEFT JOIN {schema}.entry e ON e.key = c.key
        WHERE CASE
            WHEN c.revision IS NOT NULL THEN e.revision IS DISTINCT FROM c.revision
            WHEN c.value IS NOT NULL THEN e.value IS DISTINCT FROM c.value
            ELSE e.key IS NOT NULL
        END
    LOOP
        v_broken := v_broken || v_found.txn;
        RETURN QUERY SELECT 1, v_found.place::integer, NULL::bytea,
            CASE WHEN v_found.reads THEN v_found.revision END,
            CASE WHEN v_found.reads THEN v_found.value END;
    END LOOP;
    IF cardinality(p_range_txn) > 0 THEN
        FOR v_found IN
            SELECT r.txn, r.place, e.key, e.revision, e.value
            FROM unnest(p_range_txn, p_range_start, p_range_end)
                WITH ORDINALITY AS r(txn, first, behind, place)
            CROSS JOIN LATERAL (
                SELECT * FROM {schema}.entry e WHERE e.key >= r.first AND e.key < r.behind
                ORDER BY e.key LIMIT 1
            ) e
        LOOP
            v_broken := v_broken || v_found.txn;
            RETURN QUERY SELECT 2, v_found.place::integer, v_found.key, v_found.revision,
                v_found.value;
        END LOOP;
    END IF;

    -- Drawn under every lock, so that the revisions of a key rise.
    v_revision := nextval('{schema}.revisions');
    IF cardinality(p_delete_txn) > 0 THEN
        DELETE FROM {schema}.entry e
            USING unnest(p_delete_txn, p_delete_key) AS d(txn, key)
            WHERE e.key = d.key AND d.txn <> ALL (v_broken);
    END IF;
    INSERT INTO {schema}.entry AS e (key, revision, value)
        SELECT p.key, v_revision, p.value
        FROM unnest(p_put_txn, p_put_key, p_put_value) AS p(txn, key, value)
        WHERE p.txn <> ALL (v_broken)
        ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, value = excluded.value;
    RETURN QUERY SELECT 0, NULL::integer, NULL::bytea, v_revision, NULL::bytea;
END
$$;

-- Answers queries in one snapshot: the function is STABLE, so all of its statements share the
-- snapshot of the call.
--
-- Returns (0, NULL, incarnation, NULL), then (place, key, revision, value) for every key found and
-- (place, NULL, count, NULL) for counts. Ranges of the same query are alternatives: the first that
-- is not empty answers it. A limit of NULL counts.
CREATE FUNCTION {schema}.read(
    p_key_query integer[],
    p_key bytea[],
    p_range_query integer[],
    p_range_start bytea[],
    p_range_end bytea[],
    p_range_limit bigint[]
) RETURNS TABLE (query integer, key bytea, revision bigint, value bytea)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_answered integer := 0;
BEGIN
    RETURN QUERY SELECT 0, NULL::bytea, i.id, NULL::bytea
        FROM {schema}.incarnation i WHERE i.is_only;
    IF cardinality(p_key) > 0 THEN
        RETURN QUERY SELECT k.query, e.key, e.revision, e.value
            FROM unnest(p_key_query, p_key) AS k(query, key)
            JOIN {schema}.entry e ON e.key = k.key;
    END IF;
    FOR i IN 1 .. cardinality(p_range_query) LOOP
        IF p_range_limit[i] IS NULL THEN
            RETURN QUERY SELECT p_range_query[i], NULL::bytea, count(*), NULL::bytea
                FROM {schema}.entry e WHERE e.key >= p_range_start[i] AND e.key < p_range_end[i];
        ELSIF v_answered <> p_range_query[i] THEN
            RETURN QUERY SELECT p_range_query[i], e.key, e.revision, e.value
                FROM {schema}.entry e WHERE e.key >= p_range_start[i] AND e.key < p_range_end[i]
                ORDER BY e.key LIMIT p_range_limit[i];
            IF FOUND THEN
                v_answered := p_range_query[i];
            END IF;
        END IF;
    END LOOP;
END
$$;

-- Returns the incarnation, and begins a new one if the server lost it. The caller of a new one
-- raises all fence floors, if `raises`, in the same transaction: until it commits, every other
-- commit is refused.
CREATE FUNCTION {schema}.enter() RETURNS TABLE (id bigint, raises boolean, unix_seconds bigint)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '5s'
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_system bigint;
    v_seconds bigint := extract(epoch FROM clock_timestamp());
BEGIN
    SELECT c.system_identifier INTO v_system FROM pg_control_system() c;
    RETURN QUERY SELECT i.id, false, v_seconds
        FROM {schema}.incarnation i WHERE i.system_identifier = v_system;
    IF FOUND THEN
        RETURN;
    END IF;
    -- Waits for other callers of this function and for every writer.
    LOCK TABLE {schema}.entry IN EXCLUSIVE MODE;
    RETURN QUERY SELECT i.id, false, v_seconds
        FROM {schema}.incarnation i WHERE i.system_identifier = v_system;
    IF FOUND THEN
        RETURN;
    END IF;
    DELETE FROM {schema}.incarnation;
    RETURN QUERY
        WITH begun AS (
            INSERT INTO {schema}.incarnation AS i (id, system_identifier)
            VALUES (hashtextextended(gen_random_uuid()::text, 0), v_system)
            RETURNING i.id
        )
        SELECT b.id, m.durability = 'local', v_seconds FROM begun b CROSS JOIN {schema}.meta m;
END
$$;

-- Functions are open to every role unless that is taken back.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;

INSERT INTO {schema}.meta (version) VALUES (1);
