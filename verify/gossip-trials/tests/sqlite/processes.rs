//! Real processes on one file: raced, killed, without permission, without room.
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

/// Set by whoever runs tests to decide about a change.
#[cfg(target_os = "linux")]
const CHECKS: &str = "CI";

/// The user whom the system lets do nothing.
const NOBODY: u32 = 65_534;

/// What a command printed; it must succeed.
fn told(command: &mut Command) -> String {
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
    let figures = told(&mut campaign(&["race"], scratch.path(), &["4", "120", "1"]));
    assert!(figures.contains("24 shards of at most 24, no fence given twice"), "{figures}");
}

#[test]
fn killed_processes_lose_nothing_and_invent_nothing() {
    let scratch = Scratch::on_disk("kill");
    let figures = told(&mut campaign(&["kill"], scratch.path(), &["60", "7"]));
    assert!(figures.starts_with("60 cycles on 2 files: 186 processes killed"), "{figures}");
    assert!(figures.contains("all present, nothing invented"), "{figures}");
}

/// Opens `file` as somebody without rights, whoever runs the tests.
fn opened_by_nobody(scratch: &Scratch, file: &Path) -> String {
    let mut command = campaign(&["open"], file, &[]);
    // Root may do anything, so it becomes somebody else. Others have lost the rights they took.
    if fs::metadata(scratch.path()).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    told(&mut command)
}

#[test]
fn a_file_without_permission_to_write_is_read_only() {
    let scratch = Scratch::on_disk("read-only");
    let file = scratch.file("store.db");
    assert_eq!(told(&mut campaign(&["open"], &file, &[])), "Opened");
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(opened_by_nobody(&scratch, &file), "ReadOnly");
    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    assert_eq!(opened_by_nobody(&scratch, &file), "NotPermitted");
}

#[test]
fn a_directory_without_permission_to_write_is_not_permitted() {
    let scratch = Scratch::on_disk("directory");
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o555)).unwrap();
    assert_eq!(opened_by_nobody(&scratch, &scratch.file("store.db")), "NotPermitted");
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    let file = scratch.file("there.db");
    assert_eq!(told(&mut campaign(&["open"], &file, &[])), "Opened");
    // The file may be written, but not the log that has to be created beside it.
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o555)).unwrap();
    let how = opened_by_nobody(&scratch, &file);
    assert!(how == "ReadOnly" || how == "NotPermitted", "{how}");
}

/// A disk of its own that is really full: a file system in memory that only this process sees.
/// Some containers let nobody mount one; there `fault_tests` of the crate stand for it, with a
/// limit of pages, and it is said. A machine that checks changes ([`CHECKS`]) must let us.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_refuses_what_needs_room_and_keeps_the_rest() {
    let scratch = Scratch::on_disk("full");
    let mount = "mount -t tmpfs -o size=4m tmpfs \"$1\"";
    if !among_ourselves(&scratch, mount).status().unwrap().success() {
        let why = "a full disk was NOT tested: nobody may mount a file system here\n";
        assert!(std::env::var_os(CHECKS).is_none(), "{why}");
        // Not by `println`, which nobody sees of a test that passes.
        return std::io::stderr().write_all(why.as_bytes()).unwrap();
    }
    let fill = format!("{mount} && exec \"$0\" fill \"$1/store.db\"");
    let how = told(&mut among_ourselves(&scratch, &fill));
    assert!(how.starts_with("NoSpace after "), "{how}");
}

/// Runs `script` with mounts that nobody else sees: as root, or as root among ourselves.
#[cfg(target_os = "linux")]
fn among_ourselves(scratch: &Scratch, script: &str) -> Command {
    let mut command = Command::new("unshare");
    if fs::metadata(scratch.path()).unwrap().uid() != 0 {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-c", script, CAMPAIGN]).arg(scratch.path());
    command
}

/// A write that the system cuts off in the middle. SQLite cannot tell how far it got on every
/// system, so the commit is in doubt; here it did not happen, and nothing before it was harmed.
#[test]
fn a_write_that_is_cut_off_leaves_a_commit_in_doubt_and_the_file_intact() {
    let scratch = Scratch::on_disk("limit");
    let mut command = Command::new("sh");
    // Blocks of 512 bytes; without the signal the write itself fails.
    command.args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$0\" fill \"$1\"", CAMPAIGN]);
    let how = told(command.arg(scratch.file("store.db")));
    assert!(how.starts_with("Unknown after "), "{how}");
}
