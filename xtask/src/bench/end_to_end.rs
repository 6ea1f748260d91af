//! `cargo xtask bench end-to-end`: whole commands of `gossip` beside `find`, `xargs` and others.
//!
//! A program of `gossip-trials` runs the jobs and prints the tables; both it and `gossip` are
//! release builds. The trees of files that it makes are kept in the target directory.

use std::process::Command;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

/// Runs the jobs, prints the tables, and writes them if `saves`.
pub(super) fn run(workspace: &Workspace, saves: bool, made: &Made) -> Result<(), Failure> {
    let mut build = process::cargo();
    build.args(["build", "--release", "--quiet"]);
    build.args(["--package", "gossip-cli", "--package", "gossip-trials"]);
    build.args(["--bin", "gossip", "--bin", "end-to-end"]);
    process::run(&mut build, "fix the errors that rustc printed above")?;
    let mut program = Command::new(workspace.target.join("release/end-to-end"));
    program.arg("figures").arg(workspace.target.join("end-to-end"));
    let tables = process::capture(&mut program, "read the output above")?;
    let tables = grouped_in(&tables);
    println!("{tables}");
    if saves {
        saved::END_TO_END.save(&tables, made)?;
    }
    Ok(())
}
