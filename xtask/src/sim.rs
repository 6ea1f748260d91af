//! `cargo xtask sim`: many simulated worlds, with everything that goes wrong in them.
//!
//! The simulator is a program of gossip-coordination, in the fastest build there is.
//! `--campaign` plays very many worlds and can be stopped and started again at will; with `--save`
//! its tables are written into the documentation. `--same` plays some worlds in a debug build and
//! in the fast one, and compares their traces.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// Worlds whose traces are compared.
const SAME: [&str; 4] = ["--seeds", "40", "--ops", "2000"];

/// The page that shows what a campaign came to.
const PAGE: &str = "docs/reliability-simulation.md";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    if arguments == ["--same"] {
        return compare();
    }
    let mut command = simulate("campaign");
    match arguments.split_first() {
        Some((first, rest)) if first == "--campaign" => add_campaign(&mut command, rest)?,
        Some(_) | None => _ = command.args(arguments),
    }
    process::run(&mut command, "read the trace above: its last line broke the rule")?;
    Ok(ExitCode::SUCCESS)
}

fn simulate(profile: &str) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--profile", profile, "--package", "gossip-coordination"]);
    command.args(["--features", "sim", "--example", "simulate", "--"]);
    command
}

/// Adds what a campaign has to know: which commit it plays, and where its progress is kept, beside
/// what was built, so that nothing of it is committed.
fn add_campaign(command: &mut Command, arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    command.args(["--campaign", "--commit", &commit(&workspace.root)?]);
    command.arg("--progress").arg(workspace.target.join("sim-campaign.progress"));
    for argument in arguments {
        command.arg(argument);
        if argument == "--save" {
            command.arg(workspace.root.join(PAGE));
        }
    }
    Ok(())
}

/// The commit that is checked out, and whether anything was changed since.
fn commit(root: &Path) -> Result<String, Failure> {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(root);
        process::capture(&mut git, "run it in a clone of the repository")
    };
    let id = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let mark = if changed.trim().is_empty() { "" } else { "-changed" };
    Ok(format!("{}{mark}", id.trim()))
}

/// The same seeds give the same traces, however the simulator was built.
fn compare() -> Result<ExitCode, Failure> {
    let [debug, release] = ["dev", "campaign"].map(|profile| {
        let mut command = simulate(profile);
        command.args(SAME);
        process::capture(&mut command, "run the command by hand and read its trace")
    });
    let (debug, release) = (trace_hash(&debug?), trace_hash(&release?));
    println!("trace hash: {debug} (debug), {release} (optimized)");
    if debug == release && !debug.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let why = "something in a world depends on how it was built";
    Err(Failure::new("the traces differ", why, "compare single seeds with `--trace`"))
}

/// What the report says.
fn trace_hash(report: &str) -> String {
    let line = report.lines().find(|line| line.starts_with("| trace hash |"));
    line.and_then(|line| line.split('|').nth(2)).unwrap_or_default().trim().to_owned()
}
