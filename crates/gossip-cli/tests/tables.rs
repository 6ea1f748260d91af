//! Tables as sources: rows as JSON, a worker that is killed, a table that is refused.

#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use gossip_testkit::test_support::{PostgresServer, send_signal};

use support::{Scratch, finish, wait_until};

const ROWS: usize = 600;

/// Creates a SQLite file by the program of the system's Python, which every machine with the tests
/// has.
fn sqlite(scratch: &Scratch, sql: &str) {
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let path = scratch.path().join("data.db");
    let made = Command::new("python3").args(["-c", script]).arg(path).arg(sql).status();
    assert!(made.unwrap().success());
}

fn rows(table: &str) -> String {
    format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO {table} SELECT i, 'v' || i FROM n;"
    )
}

/// Kills the worker in the middle, runs the command again, and checks rows and certificate.
fn kill_and_resume(scratch: &Scratch, source: &str) {
    let note = "sleep 0.005; printf '%s\\n' \"$1\" >> seen";
    let args = ["exec", source, "--jobs", "2", "--", "sh", "-c", note, "sh", "{}"];
    let mut child = scratch.gossip(&args).spawn().unwrap();
    wait_until("some rows", || scratch.lines("seen").len() >= ROWS / 4);
    send_signal("KILL", child.id());
    child.wait().unwrap();
    let ran = finish(scratch.gossip(&args).spawn().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("complete: {ROWS} keys")), "{}", ran.stderr);
    let seen: BTreeSet<String> = scratch.lines("seen").into_iter().collect();
    let expected = (1..=ROWS).map(|id| format!("{{\"id\":{id},\"v\":\"v{id}\"}}"));
    assert_eq!(seen, expected.collect());
    let id = ran.stderr.split("run ").nth(1).unwrap().split(':').next().unwrap().to_owned();
    let verified = finish(scratch.gossip(&["run", "verify", &id, "--source"]).spawn().unwrap());
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn a_killed_worker_over_a_sqlite_table_is_resumed() {
    let scratch = Scratch::with_short_leases();
    sqlite(&scratch, &rows("t"));
    kill_and_resume(&scratch, "sqlite:data.db?table=t");
}

#[test]
fn a_killed_worker_over_a_postgres_table_is_resumed() {
    let (scratch, server) = (Scratch::with_short_leases(), PostgresServer::single());
    server.sql(&rows("t"));
    let source = format!("postgres://gossip@127.0.0.1:{}/postgres?table=t", server.port());
    kill_and_resume(&scratch, &source);
}

#[test]
fn keys_are_shown_as_their_columns() {
    let scratch = Scratch::new();
    sqlite(
        &scratch,
        "CREATE TABLE t (a TEXT, b INT, PRIMARY KEY (a, b));
         INSERT INTO t VALUES ('x', 1), ('x', 2)",
    );
    let args =
        ["exec", "sqlite:data.db?table=t", "--", "sh", "-c", "echo $1 | grep -q ':1}'", "sh", "{}"];
    let ran = finish(scratch.gossip(&args).spawn().unwrap());
    assert_ne!(ran.code, Some(0));
    let id = ran.stderr.split("run ").nth(1).unwrap().split(':').next().unwrap().to_owned();
    let failed = finish(scratch.gossip(&["failed", &id]).spawn().unwrap());
    assert!(failed.stdout.contains("\"x\",2"), "{}", failed.stdout);
    assert!(!failed.stdout.contains("\"x\",1"), "{}", failed.stdout);
}

#[test]
fn an_unusable_table_is_refused_before_the_run() {
    let scratch = Scratch::new();
    sqlite(&scratch, "CREATE TABLE t (a INT)");
    let ran =
        finish(scratch.gossip(&["exec", "sqlite:data.db?table=t", "--", "true"]).spawn().unwrap());
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("no primary key"), "{}", ran.stderr);
    let runs = finish(scratch.gossip(&["run", "list"]).spawn().unwrap());
    assert!(!runs.stdout.contains("sqlite"), "{}", runs.stdout);
}

/// A table with the same name and another key means other items under the keys of the run.
#[test]
fn a_run_is_not_resumed_after_its_key_changed() {
    let scratch = Scratch::new();
    sqlite(&scratch, &rows("t"));
    let create = ["run", "create", "sqlite:data.db?table=t", "--", "true"];
    let made = finish(scratch.gossip(&create).spawn().unwrap());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    sqlite(&scratch, "DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT)");
    let ran =
        finish(scratch.gossip(&["exec", "sqlite:data.db?table=t", "--", "true"]).spawn().unwrap());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("changed since the run was created"), "{}", ran.stderr);
}

/// Rows that were added after the end of a run are counted by range.
#[test]
fn rows_that_were_added_to_a_finished_run_are_counted() {
    let scratch = Scratch::new();
    sqlite(&scratch, &rows("t"));
    let args = ["exec", "sqlite:data.db?table=t", "-j", "1", "--shards", "1", "--batch", "100"];
    let args = [&args[..], &["--", "true"]].concat();
    assert_eq!(scratch.run(&args).code, Some(0));
    let same = scratch.run(&args);
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(!same.stderr.contains("not compared"), "{same:?}");
    sqlite(&scratch, "INSERT INTO t VALUES (10001, 'new'), (10002, 'new')");
    let more = scratch.run(&args);
    assert_eq!(more.code, Some(3), "{more:?}");
    assert!(more.stderr.contains("the source now has 2 items more, in 1 range"), "{more:?}");
    assert!(more.stderr.contains("  all keys: 600 items then, 602 now\n"), "{more:?}");
}

/// Names in braces are columns; an unknown one is refused with the known ones, before a run exists.
fn columns_are_placeholders(scratch: &Scratch, source: &str) {
    let ran = scratch.run(&["exec", source, "--", "echo", "{nope}"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("no column `nope`; the columns are: id, v"), "{ran:?}");
    let args = ["exec", source, "--jobs", "1", "--ungroup", "--", "echo", "{v}", "{id}"];
    let ran = scratch.run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut lines: Vec<&str> = ran.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["two words 2", "x 1"], "{ran:?}");
}

#[test]
fn columns_of_a_sqlite_table_are_placeholders() {
    let scratch = Scratch::new();
    sqlite(
        &scratch,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);
         INSERT INTO t VALUES (1, 'x'), (2, 'two words')",
    );
    columns_are_placeholders(&scratch, "sqlite:data.db?table=t");
}

#[test]
fn columns_of_a_postgres_table_are_placeholders() {
    let (scratch, server) = (Scratch::new(), PostgresServer::single());
    server.sql(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, gone INT, v TEXT);
         ALTER TABLE t DROP COLUMN gone;
         INSERT INTO t VALUES (1, 'x'), (2, 'two words')",
    );
    let source = format!("postgres://gossip@127.0.0.1:{}/postgres?table=t", server.port());
    columns_are_placeholders(&scratch, &source);
}
