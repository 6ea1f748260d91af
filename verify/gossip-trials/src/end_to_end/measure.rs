//! Rounds of several programs that do the same job.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::Bench;
use crate::Outcome;

type MakeCommand<'a> = dyn Fn(&Bench) -> Outcome<Command> + 'a;

/// A program that does a job. The first of a job is ours, the second the one to compare with.
pub(super) struct Contestant<'a> {
    pub(super) name: &'a str,
    /// Makes the command, which runs once.
    pub(super) command: Box<MakeCommand<'a>>,
}

impl<'a> Contestant<'a> {
    pub(super) fn new(name: &'a str, command: impl Fn(&Bench) -> Outcome<Command> + 'a) -> Self {
        Self { name, command: Box::new(command) }
    }
}

/// What one run of a program took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) wall: f64,
    pub(super) processor: f64,
    /// The largest of its processes, in kB.
    pub(super) memory: f64,
}

/// Runs every program in every round, and returns the rows of a table.
pub(super) fn rows(bench: &Bench, job: &str, contestants: &[Contestant<'_>]) -> Outcome<String> {
    let mut taken: Vec<Vec<Taken>> = vec![Vec::new(); contestants.len()];
    for round in 0..bench.rounds() {
        for turn in 0..contestants.len() {
            // Another program begins each round, so that none always runs after the same one.
            let at = (round + turn) % contestants.len();
            let command = (contestants[at].command)(bench)?;
            taken[at].push(once(bench, command)?);
        }
    }
    let walls = |at: usize| taken[at].iter().map(|it| it.wall).collect::<Vec<_>>();
    let mut rows = String::new();
    for (at, contestant) in contestants.iter().enumerate() {
        let ratio = match contestants.len() {
            2.. if at != 1 => {
                // Of each round, because a busy machine slows down all programs of a round.
                let pairs = walls(at).into_iter().zip(walls(1));
                format!("{:.2}", median(pairs.map(|(wall, peer)| wall / peer).collect()))
            }
            _ => String::new(),
        };
        let processor = median(taken[at].iter().map(|it| it.processor).collect());
        let memory = median(taken[at].iter().map(|it| it.memory).collect()) / 1_000.0;
        let wall = seconds(median(walls(at)));
        let (job, name) = (if at == 0 { job } else { "" }, contestant.name);
        writeln!(
            rows,
            "| {job} | {name} | {wall} | {ratio} | {processor:.2} s | {memory:.1} MB |"
        )?;
    }
    Ok(rows)
}

/// Runs a command, and returns what it took. Fails if it does.
pub(super) fn once(bench: &Bench, command: Command) -> Outcome<Taken> {
    let report = bench.directory.join("taken");
    let mut timed = Command::new("time");
    timed.args(["-f", "%U %S %M", "-o"]).arg(&report).arg(command.get_program());
    timed.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::null());
    timed
        .current_dir(command.get_current_dir().unwrap_or_else(|| Path::new(".")))
        .stderr(Stdio::piped());
    let begun = Instant::now();
    let output = timed.output()?;
    let wall = begun.elapsed().as_secs_f64();
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} ended with {}: {text}", output.status).into());
    }
    let report = fs::read_to_string(report)?;
    let numbers: Vec<f64> = report.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [user, system, memory] = numbers[..] else { return Err("time wrote no report".into()) };
    Ok(Taken { wall, processor: user + system, memory })
}

pub(super) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    numbers.get(middle).copied().unwrap_or(f64::NAN)
}

/// Returns a time with three digits that count.
pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        ..0.1 => format!("{:.1} ms", seconds * 1_000.0),
        ..1.0 => format!("{:.0} ms", seconds * 1_000.0),
        _ => format!("{seconds:.2} s"),
    }
}
