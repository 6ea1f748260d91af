//! A commit sees everything that was committed while it waited for its locks.

use std::thread;

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{
    Answer, CommitOutcome, Key, KeyRange, Read, Store as _, Txn, Versioned,
};
use gossip_coordination_postgres::{BlockingStore, PostgresConfig};
use gossip_testkit::Rng;
use gossip_testkit::test_support::PostgresServer;

use crate::message_proxy::{MessageProxy, Side};
use crate::real_server::{config_on, server};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);
const HEAD: Key = Key::RunHead { tenant: TENANT, run: RUN };

const fn hot(shard: u64) -> Key {
    Key::ShardHot { tenant: TENANT, shard: ShardKey::new(RUN, ShardId::from_raw(shard)) }
}

fn load(store: &mut BlockingStore, key: Key) -> Option<Versioned> {
    match store.read(vec![Read::Get(key)]).unwrap().remove(0) {
        Answer::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

fn put(store: &mut BlockingStore, key: Key, bytes: &[u8]) {
    let mut txn = Txn::new();
    txn.put(key, bytes.to_vec());
    let outcome = store.commit(vec![txn]).remove(0).unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied { .. }), "{outcome:?}");
}

/// Compares the head and replaces the value of a shard, as a checkpoint does.
fn checkpoint(store: &mut BlockingStore) -> Txn {
    let (head, shard) = (load(store, HEAD), load(store, hot(1)));
    let mut txn = Txn::new();
    txn.expect(HEAD, head.as_ref());
    txn.expect(hot(1), shard.as_ref());
    txn.put(hot(1), b"two".to_vec());
    txn
}

/// Returns how many sessions of stores wait for an advisory lock.
fn waiting(server: &PostgresServer) -> String {
    server.sql(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
         WHERE NOT l.granted AND l.locktype = 'advisory' AND a.application_name = 'gossip'",
    )
}

/// Holds a change of the head open in another session, calls `body`, and commits the change when
/// `body` asks for it or has ended. `body` must not panic: the session would wait for ever.
fn with_changing_head<R>(
    config: &PostgresConfig,
    server: &PostgresServer,
    body: impl FnOnce(&dyn Fn()) -> R,
) -> R {
    let schema = &config.schema;
    let head = HEAD.to_bytes();
    let hex: String = head.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    // The session that holds the change waits for the signal table to have a row.
    server.sql(&format!("CREATE TABLE {schema}.signal (go boolean)"));
    let held = format!(
        "BEGIN; \
         SELECT pg_advisory_xact_lock({}); \
         UPDATE {schema}.entry SET revision = nextval('{schema}.revisions') \
         WHERE key = '\\x{hex}'; \
         DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM {schema}.signal) LOOP \
         PERFORM pg_sleep(0.01); END LOOP; END $$; COMMIT",
        run_lock(schema)
    );
    thread::scope(|scope| {
        let holder = scope.spawn(|| server.sql(&held));
        let holds = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while server.sql(holds) == "0" {
            thread::yield_now();
        }
        let release = || _ = server.sql(&format!("INSERT INTO {schema}.signal VALUES (true)"));
        let result = body(&release);
        release();
        holder.join().unwrap();
        result
    })
}

/// Commits `txn` while the head is changed, and returns its outcome.
fn commit_across(config: &PostgresConfig, server: &PostgresServer, txn: Txn) -> CommitOutcome {
    let mut store = BlockingStore::connect(config).unwrap();
    let (has_waited, committed) = with_changing_head(config, server, |release| {
        thread::scope(|scope| {
            let committing = scope.spawn(|| store.commit(vec![txn]).remove(0));
            while waiting(server) == "0" && !committing.is_finished() {
                thread::yield_now();
            }
            let has_waited = !committing.is_finished();
            release();
            (has_waited, committing.join())
        })
    });
    assert!(has_waited, "the commit did not wait for the change");
    committed.unwrap().unwrap()
}

/// The number of the lock of the run, computed as the store documents it: FNV-1a over the schema
/// and the key of the run's head.
fn run_lock(schema: &str) -> i64 {
    let head = HEAD.to_bytes();
    let bytes = schema.as_bytes().iter().chain(head.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed()
}

/// If lock and comparison were one statement, it would compare with a snapshot from before the
/// lock, and a shard of a cancelled run would be granted.
#[test]
fn a_commit_sees_a_head_that_changed_while_it_waited() {
    let server = PostgresServer::single();
    let config = config_on(&server);
    let mut store = BlockingStore::connect(&config).unwrap();
    put(&mut store, HEAD, b"active");
    put(&mut store, hot(1), b"one");
    let outcome = commit_across(&config, &server, checkpoint(&mut store));
    let CommitOutcome::Conflict(conflict) = outcome else { panic!("{outcome:?}") };
    assert_eq!(conflict.key(), HEAD);
    assert_eq!(load(&mut store, hot(1)).unwrap().bytes, b"one");
}

/// The function `commit` with the locks in the statement that compares.
fn one_statement_form(schema: &str) -> String {
    const SQL: &str = include_str!("../../src/migrations/0001.sql");
    let start = SQL.find("CREATE FUNCTION {schema}.commit(").unwrap();
    let end = start + SQL[start..].find("\n$$;").unwrap() + "\n$$;".len();
    let function = &SQL[start..end];
    let locks = function.find("    FOR i IN 1 .. cardinality(p_locks) LOOP").unwrap();
    let behind = function.find("    IF cardinality(p_anchors) > 0 THEN").unwrap();
    let condition = "WHERE (SELECT count(CASE WHEN l.x THEN pg_advisory_xact_lock(l.id)::text \
                     ELSE pg_advisory_xact_lock_shared(l.id)::text END) \
                     FROM unnest(p_locks, p_exclusive) AS l(id, x)) >= 0 AND CASE";
    let mutant = format!("{}{}", &function[..locks], &function[behind..]);
    assert!(mutant.contains("WHERE CASE"), "the comparing statement was changed");
    let mutant = mutant.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION");
    mutant.replacen("WHERE CASE", condition, 1).replace("{schema}", schema)
}

/// Shows that the script above finds the mistake: a mutant of the function commits on a head that
/// has changed.
#[test]
fn a_lock_in_the_comparing_statement_misses_the_change() {
    let server = PostgresServer::single();
    let config = config_on(&server);
    let mut store = BlockingStore::connect(&config).unwrap();
    put(&mut store, HEAD, b"active");
    put(&mut store, hot(1), b"one");
    server.sql(&one_statement_form(&config.schema));
    let outcome = commit_across(&config, &server, checkpoint(&mut store));
    assert!(matches!(outcome, CommitOutcome::Applied { .. }), "{outcome:?}");
}

/// The server ends the wait before the commit, so the transaction certainly was not applied.
#[test]
fn a_lock_that_is_held_too_long_is_an_error_and_not_unknown() {
    let server = PostgresServer::single();
    let config = config_on(&server);
    let mut store = BlockingStore::connect(&config).unwrap();
    put(&mut store, HEAD, b"active");
    put(&mut store, hot(1), b"one");
    server.sql(&format!("ALTER FUNCTION {}.commit SET lock_timeout = '100ms'", config.schema));
    let txn = checkpoint(&mut store);
    let outcome = with_changing_head(&config, &server, |_| store.commit(vec![txn]).remove(0));
    let error = outcome.expect_err("the lock was held");
    assert!(error.is_retryable() && error.to_string().contains("55P03"), "{error}");
    assert_eq!(load(&mut store, hot(1)).unwrap().bytes, b"one");
}

/// If each of them waited until the server ends its wait, the process would be stopped for as many
/// times that long.
#[test]
fn a_batch_that_waits_too_long_is_not_sent_one_by_one_to_the_end() {
    const COUNT: u64 = 32;
    const CALLS_MAX: usize = 16;
    let server = PostgresServer::single();
    let proxy = MessageProxy::before(server.port());
    let config = PostgresConfig { port: proxy.port(), ..config_on(&server) };
    let mut store = BlockingStore::connect(&config).unwrap();
    put(&mut store, HEAD, b"active");
    server.sql(&format!("ALTER FUNCTION {}.commit SET lock_timeout = '20ms'", config.schema));
    let txns = (0..COUNT).map(|number| {
        let mut txn = Txn::new();
        txn.expect(hot(number), None);
        txn.put(hot(number), b"new".to_vec());
        txn
    });
    proxy.record();
    let outcomes = with_changing_head(&config, &server, |_| store.commit(txns.collect()));
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    let calls = proxy.recorded().iter().filter(|it| **it == (Side::Client, b'E')).count();
    assert!((1..=CALLS_MAX).contains(&calls), "{calls} calls");
}

#[test]
fn an_error_of_one_transaction_does_not_fail_the_batch() {
    let config = config_on(server());
    let mut store = BlockingStore::connect(&config).unwrap();
    put(&mut store, HEAD, b"active");
    let schema = &config.schema;
    server().sql(&format!(
        "CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'canary' USING ERRCODE = '22023'; END $$; \
         CREATE TRIGGER fail BEFORE INSERT ON {schema}.entry FOR EACH ROW \
         WHEN (NEW.value = 'bad') EXECUTE FUNCTION {schema}.fail()"
    ));
    let txns = ["good", "bad", "fine"].into_iter().zip(1..).map(|(value, number)| {
        let mut txn = Txn::new();
        txn.expect(hot(number), None);
        txn.put(hot(number), value.as_bytes().to_vec());
        txn
    });
    let outcomes = store.commit(txns.collect());
    let applied: Vec<bool> = outcomes
        .iter()
        .map(|outcome| matches!(outcome, Ok(CommitOutcome::Applied { .. })))
        .collect();
    assert_eq!(applied, [true, false, true]);
    let error = outcomes[1].as_ref().expect_err("the trigger refuses it");
    assert!(!error.to_string().contains("canary"), "{error}");
    assert_eq!(load(&mut store, hot(2)), None);
}

/// Concurrent transactions of a process share calls: each call is one flush of the log.
#[test]
fn transactions_that_wait_share_calls() {
    const COUNT: u64 = 64;
    const CALLS_MAX: usize = 8;
    let proxy = MessageProxy::before(server().port());
    let config = PostgresConfig { port: proxy.port(), ..config_on(server()) };
    let mut store = BlockingStore::connect(&config).unwrap();
    put(&mut store, HEAD, b"active");
    proxy.record();
    let txns = (0..COUNT).map(|number| {
        let mut txn = Txn::new();
        txn.expect(hot(number), None);
        txn.put(hot(number), b"new".to_vec());
        txn
    });
    for outcome in store.commit(txns.collect()) {
        assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
    }
    let calls = proxy.recorded().iter().filter(|it| **it == (Side::Client, b'E')).count();
    assert!((1..=CALLS_MAX).contains(&calls), "{calls} calls");
}

#[test]
fn a_conflict_in_one_transaction_of_a_call_does_not_fail_the_others() {
    let config = config_on(server());
    let mut store = BlockingStore::connect(&config).unwrap();
    put(&mut store, hot(1), b"one");
    let mut good = Txn::new();
    good.expect(hot(2), None);
    good.put(hot(2), b"good".to_vec());
    let mut bad = Txn::new();
    bad.expect(hot(1), None);
    bad.put(hot(3), b"bad".to_vec());
    let mut other = Txn::new();
    other.expect_empty(KeyRange::owners_of(TENANT, RUN));
    other.put(hot(4), b"other".to_vec());
    let outcomes = store.commit(vec![good, bad, other]);
    let applied: Vec<bool> = outcomes
        .iter()
        .map(|outcome| matches!(outcome, Ok(CommitOutcome::Applied { .. })))
        .collect();
    assert_eq!(applied, [true, false, true]);
    assert_eq!(load(&mut store, hot(3)), None);
}

/// Transfers between counters by many writers, each comparing two and writing both. A lost update
/// or a write skew would change the sum.
#[test]
fn racing_writers_lose_no_update() {
    const COUNTERS: u64 = 4;
    const WRITERS: u64 = 6;
    const TRANSFERS: usize = 40;
    let config = config_on(server());
    let mut store = BlockingStore::connect(&config).unwrap();
    put(&mut store, HEAD, b"active");
    for shard in 0..COUNTERS {
        put(&mut store, hot(shard), &100_u64.to_be_bytes());
    }
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            // Half of them share a process, and so a group commit.
            let mut store = match writer % 2 {
                0 => BlockingStore::connect(&config).unwrap(),
                _ => store.clone(),
            };
            scope.spawn(move || {
                let mut rng = Rng::seeded(writer);
                let mut done = 0;
                while done < TRANSFERS {
                    let from = rng.below(COUNTERS);
                    let to = (from + 1 + rng.below(COUNTERS - 1)) % COUNTERS;
                    done += usize::from(transfer(&mut store, hot(from), hot(to)));
                }
            });
        }
    });
    let number =
        |value: Option<Versioned>| u64::from_be_bytes(value.unwrap().bytes.try_into().unwrap());
    let sum: u64 = (0..COUNTERS).map(|shard| number(load(&mut store, hot(shard)))).sum();
    assert_eq!(sum, 100 * COUNTERS);
}

/// Moves one from one counter to another; `false` if another writer was faster.
fn transfer(store: &mut BlockingStore, from: Key, to: Key) -> bool {
    let values = store.read(vec![Read::Get(from), Read::Get(to), Read::Get(HEAD)]).unwrap();
    let mut txn = Txn::new();
    let keys = [(from, u64::MAX), (to, 1), (HEAD, 0)];
    for (answer, (key, change)) in values.into_iter().zip(keys) {
        let Answer::Value(Some(found)) = answer else { panic!("{answer:?}") };
        txn.expect(key, Some(&found));
        if key != HEAD {
            let number = u64::from_be_bytes(found.bytes.try_into().unwrap());
            txn.put(key, number.wrapping_add(change).to_be_bytes().to_vec());
        }
    }
    match store.commit(vec![txn]).remove(0).unwrap() {
        CommitOutcome::Applied { .. } => true,
        CommitOutcome::Conflict(_) => false,
        CommitOutcome::Unknown => panic!("no reply was lost"),
    }
}
