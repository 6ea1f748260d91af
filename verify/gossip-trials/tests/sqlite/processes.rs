//! Processes on one file: races, kills, missing permissions, a full disk.
//!
//! The short forms of the campaigns of `sqlite-campaign`; `docs/reliability.md` has the long ones.
//! Everything here is synced to a real file system, as by default.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use gossip_trials::process::output_of;

use crate::support::{CAMPAIGN, Scratch};

/// Set on machines that gate changes.
#[cfg(target_os = "linux")]
const CHECKS: &str = "CI";

/// An unprivileged user.
const UNPRIVILEGED: u32 = 65_534;

/// Runs a command, which must succeed, and returns its output.
fn printed_by(command: &mut Command) -> String {
    let out = output_of(command).unwrap();
    println!("{out}");
    out
}

fn campaign(words: &[&str], path: &Path, rest: &[&str]) -> Command {
    let mut command = Command::new(CAMPAIGN);
    command.args(words).arg(path).args(rest);
    command
}

#[test]
fn racing_processes_overshoot_no_limit_and_share_no_fence() {
    let scratch = Scratch::on_disk("race");
    let figures = printed_by(&mut campaign(&["race"], scratch.path(), &["4", "120", "1"]));
    assert!(figures.contains("24 shards of at most 24, no fence given twice"), "{figures}");
}

#[test]
fn killed_processes_lose_nothing_and_invent_nothing() {
    let scratch = Scratch::on_disk("kill");
    let figures = printed_by(&mut campaign(&["kill"], scratch.path(), &["60", "7"]));
    assert!(figures.starts_with("60 cycles on 2 files: 186 processes killed"), "{figures}");
    assert!(figures.contains(", 60 checks of the file and of "), "{figures}");
    assert!(!figures.contains(" of 0 shards"), "{figures}");
}

/// Opens `file` as an unprivileged user.
fn opened_unprivileged(scratch: &Scratch, file: &Path) -> String {
    if fs::metadata(scratch.path()).unwrap().uid() != 0 {
        return printed_by(&mut campaign(&["open"], file, &[]));
    }
    // Root ignores permissions, so it switches to another user. That one may not enter the
    // directory of the build if it is in the home of root, so it runs a copy.
    let program = scratch.file("campaign");
    fs::copy(CAMPAIGN, &program).unwrap();
    let mut command = Command::new(&program);
    command.arg("open").arg(file).uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    printed_by(&mut command)
}

#[test]
fn a_file_without_permission_to_write_is_read_only() {
    let scratch = Scratch::on_disk("read-only");
    let file = scratch.file("store.db");
    assert_eq!(printed_by(&mut campaign(&["open"], &file, &[])), "Opened");
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(opened_unprivileged(&scratch, &file), "ReadOnly");
    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    assert_eq!(opened_unprivileged(&scratch, &file), "NotPermitted");
}

#[test]
fn a_directory_without_permission_to_write_is_not_permitted() {
    let scratch = Scratch::on_disk("directory");
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o555)).unwrap();
    assert_eq!(opened_unprivileged(&scratch, &scratch.file("store.db")), "NotPermitted");
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    let file = scratch.file("there.db");
    assert_eq!(printed_by(&mut campaign(&["open"], &file, &[])), "Opened");
    // The file is writable, but the WAL cannot be created next to it.
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o555)).unwrap();
    let how = opened_unprivileged(&scratch, &file);
    assert!(how == "ReadOnly" || how == "NotPermitted", "{how}");
}

/// Fills a real disk: a tmpfs in a private mount namespace. Some containers do not permit mounts;
/// there the test prints a note, and only `fault_tests` of the SQLite crate cover the case, with a
/// page limit. A machine that gates changes ([`CHECKS`]) must permit it.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_refuses_what_needs_room_and_keeps_the_rest() {
    let scratch = Scratch::on_disk("full");
    let mount = "mount -t tmpfs -o size=4m tmpfs \"$1\"";
    if !in_namespace(&scratch, mount).status().unwrap().success() {
        let why = "NOT RUN: full disk: mounts are not permitted here\n";
        assert!(std::env::var_os(CHECKS).is_none(), "{why}");
        // Not `println`, because the output of a passing test is captured.
        return std::io::stderr().write_all(why.as_bytes()).unwrap();
    }
    let fill = format!("{mount} && exec \"$0\" fill \"$1/store.db\"");
    let how = printed_by(&mut in_namespace(&scratch, &fill));
    assert!(how.starts_with("NoSpace after "), "{how}");
}

/// Runs `script` in a private mount namespace, as root or as root of a user namespace.
#[cfg(target_os = "linux")]
fn in_namespace(scratch: &Scratch, script: &str) -> Command {
    let mut command = Command::new("unshare");
    if fs::metadata(scratch.path()).unwrap().uid() != 0 {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-c", script, CAMPAIGN]).arg(scratch.path());
    command
}

/// A write that fails in the middle. SQLite cannot determine on every system how far it got, so the
/// outcome is unknown; here the commit was not applied, and earlier commits are intact.
#[test]
fn a_write_that_is_cut_off_leaves_a_commit_in_doubt_and_the_file_intact() {
    let scratch = Scratch::on_disk("limit");
    let mut command = Command::new("sh");
    // Blocks of 512 bytes; without the signal the write itself fails.
    command.args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$0\" fill \"$1\"", CAMPAIGN]);
    let how = printed_by(command.arg(scratch.file("store.db")));
    assert!(how.starts_with("Unknown after "), "{how}");
}
