//! Today's program and one of an artificial next format on one store (DESIGN Q40).
//!
//! The next program is built from a copy of the sources with a few edits
//! (`verify/gossip-mutants/edits/next_format.txt`): the format number is one higher, and the head
//! of a run has a further field.
#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::LazyLock;

use gossip_mutants::{catalog, copy};

use support::{Ran, Scratch, finish, wait_until};

/// Exit code of a worker that must be upgraded.
const UPGRADE: Option<i32> = Some(6);

/// The program of the next format. Crates of others are built once for both programs.
static NEXT: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_BIN_EXE_gossip")).parent().unwrap();
    let target = directory.parent().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = target.join("next-format");
    std::fs::create_dir_all(&sources).unwrap();
    copy::make(&root, &sources, &catalog::next_format().unwrap()).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // All packages are selected although one program is built, and a test with it: dependencies
    // then have the features of the test build, so that those which it compiled are used.
    cargo.args(["build", "--quiet", "--workspace", "--all-features"]);
    cargo.args(["--bin", "gossip-next", "--test", "documented"]);
    cargo.current_dir(&sources).env("CARGO_TARGET_DIR", target);
    let built = cargo.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    directory.join("gossip-next")
});

fn next(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = scratch.command(NEXT.to_str().unwrap());
    command.args(args);
    command
}

fn run_next(scratch: &Scratch, args: &[&str]) -> Ran {
    finish(next(scratch, args).spawn().unwrap())
}

/// Creates a run of items that take a moment each and append their number to a file.
fn create(scratch: &Scratch, items: u32, lease: &str) -> String {
    // Built before a worker starts, not while it works.
    LazyLock::force(&NEXT);
    let source = format!("range:0..{items}");
    let made = scratch.run(&[
        "run",
        "create",
        &source,
        "--shards",
        "4",
        "--lease",
        lease,
        "--",
        "sh",
        "-c",
        "sleep 0.1; echo $0 >> done",
        "{}",
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    made.stdout.trim().to_owned()
}

fn old_worker(scratch: &Scratch, run: &str) -> Child {
    let worker = scratch.gossip(&["worker", run, "-j", "2"]).spawn().unwrap();
    wait_until("the first items", || scratch.lines("done").len() > 3);
    worker
}

/// Returns the items that were processed.
fn done(scratch: &Scratch) -> BTreeSet<u32> {
    scratch.lines("done").iter().map(|line| line.parse().unwrap()).collect()
}

fn number(ran: &Ran, field: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(ran.stdout.trim()).unwrap();
    value[field].as_u64().unwrap()
}

#[test]
fn fleet_is_upgraded_one_worker_at_a_time() {
    let scratch = Scratch::with_short_leases();
    let run = create(&scratch, 400, "15s");
    // A newer worker joins: both work, and write what both read.
    let old = old_worker(&scratch, &run);
    let mut joined = next(&scratch, &["worker", &run, "-j", "2"]).spawn().unwrap();
    wait_until("more items", || scratch.lines("done").len() > 20);
    assert_eq!(scratch.run(&["run", "show", &run]).code, Some(0));

    // The operator upgrades the store although an old worker still runs: it exits.
    let upgraded = run_next(&scratch, &["store", "upgrade", "--wait", "12s", "-o", "jsonl"]);
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    assert_eq!((number(&upgraded, "from"), number(&upgraded, "to")), (2, 3));
    assert!(number(&upgraded, "rewritten") > 4 && number(&upgraded, "unreadable") == 0);
    let old = finish(old);
    assert_eq!(old.code, UPGRADE, "{old:?}");
    let said = "store has format 3, this gossip reads up to 2";
    assert!(old.stderr.contains(said) && old.stderr.contains("upgrade this worker"), "{old:?}");

    // The newer worker has worked on meanwhile, and finishes the run. Nothing was lost, and nothing
    // repeated: the old worker has saved what it did.
    assert_eq!(joined.wait().unwrap().code(), Some(0));
    assert_eq!(done(&scratch), (0..400).collect());
    assert_eq!(scratch.lines("done").len(), 400);

    // An old program changes and deletes nothing.
    for command in [&["run", "list"][..], &["worker", &run], &["store", "upgrade"]] {
        let refused = scratch.run(command);
        assert_eq!(refused.code, UPGRADE, "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    let again = run_next(&scratch, &["store", "upgrade", "-o", "jsonl"]);
    assert_eq!((again.code, number(&again, "rewritten")), (Some(0), 0), "{again:?}");
}

/// A worker that was given no time meets a newer record: it ends, and its shards are resumed from
/// their last checkpoints.
#[test]
fn worker_that_meets_a_newer_record_loses_nothing() {
    let scratch = Scratch::with_short_leases();
    let run = create(&scratch, 80, "2s");
    let old = old_worker(&scratch, &run);
    let upgraded = run_next(&scratch, &["store", "upgrade", "--wait", "0s"]);
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    let old = finish(old);
    assert_eq!(old.code, UPGRADE, "{old:?}");
    let finished = run_next(&scratch, &["worker", &run, "-j", "4"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(done(&scratch), (0..80).collect());
}

/// Until the operator upgrades it, a store stays in the format of the oldest program.
#[test]
fn newer_program_alone_does_not_change_the_format() {
    let scratch = Scratch::new();
    let exec = ["exec", "range:0..8", "--", "true"];
    assert_eq!(run_next(&scratch, &exec).code, Some(0));
    let listed = scratch.run(&["run", "list", "-o", "jsonl"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.contains("done"), "{listed:?}");
}
