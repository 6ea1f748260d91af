//! `cargo xtask nightly --hours N`: runs every campaign, and writes one report.
//!
//! The first round runs every campaign once. Further rounds repeat those that draw other cases each
//! time, with the next seeds, until N hours are used: the work of a round is in proportion to the
//! time that a whole round takes, not to N.
//!
//! It resumes: every finished part is a line of a file in the target directory ([`state`]), and is
//! not run again for the same commit, after an interruption or a reboot. A part that fails does not
//! stop the others; the command fails at the end. One that could not run a stage on this machine,
//! which it prints as `NOT RUN`, is reported as skipped in part. The output of each part is kept
//! beside the file.
//! The report is a block of `docs/nightly.md`, or any file with `--report`.

mod state;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use self::state::{Ended, Part, State};
use crate::failure::Failure;
use crate::figures;
use crate::saved::{self, Made};
use crate::tally::NOT_RUN;
use crate::workspace::Workspace;

pub(crate) const USAGE: &str = "--hours N [--short] [--only CAMPAIGN] [--report FILE]";

const SECONDS_PER_HOUR: f64 = 3_600.0;

/// The directory of state and outputs, below the target directory.
const DIRECTORY: &str = "nightly";

/// The first seed of campaigns that take one; round r uses the r-th after it.
const SEED: u64 = 20_261_115;

/// One campaign: a command of xtask.
#[derive(Debug)]
struct Campaign {
    /// The command, and the name in the report.
    name: &'static str,
    /// Words of a usual part. `{seed}` is the seed of the round; `{next}` and `{sum}` multiply the
    /// size that follows: by the round, to begin behind the last one, or by the rounds so far, for
    /// a command that keeps its own progress.
    words: &'static str,
    /// The same for a test of the command line.
    short: &'static str,
    /// Whether another round has other cases.
    repeats: bool,
}

/// Every campaign, cheap ones first.
const CAMPAIGNS: &[Campaign] = &[
    Campaign { name: "check-handoff", words: "", short: "1 0", repeats: false },
    Campaign { name: "sim --same", words: "", short: "", repeats: false },
    Campaign { name: "terminal", words: "8000 300 200", short: "100 3 2", repeats: true },
    Campaign { name: "makespan", words: "", short: "", repeats: false },
    Campaign {
        name: "sim-worker",
        words: "--seeds 50000 --from {next}50000",
        short: "--seeds 20 --from {next}20",
        repeats: true,
    },
    Campaign {
        name: "sim-handoff",
        words: "--schedules 500000 --from {next}500000 --threads 2",
        short: "--schedules 1000 --from {next}1000",
        repeats: true,
    },
    Campaign {
        name: "sim",
        words: "--campaign --threads 2 --seeds {sum}10000 --progress {directory}/sim.progress",
        short: "--campaign --threads 2 --seeds {sum}10 --progress {directory}/sim.progress",
        repeats: true,
    },
    Campaign {
        name: "sim --pairs",
        words: "1000 --threads 2 --seed {next}1000",
        short: "2 --threads 2 --seed {next}2",
        repeats: true,
    },
    Campaign {
        name: "poison",
        words: "--seed {seed}",
        short: "--seed {seed} --keys 2000 --killers 1 --jobs 1",
        repeats: true,
    },
    Campaign { name: "fleet", words: "", short: "--keys 2000", repeats: true },
    Campaign {
        name: "kill-worker",
        words: "--kills 500 --seed {seed}",
        short: "--kills 3 --seed {seed}",
        repeats: true,
    },
    Campaign {
        name: "kill-sqlite",
        words: "--cycles 100000 --seed {seed}",
        short: "--cycles 3 --seed {seed}",
        repeats: true,
    },
    Campaign {
        name: "power-loss",
        words: "--images 100000 --seed {seed}",
        short: "--images 5 --seed {seed}",
        repeats: true,
    },
    Campaign {
        name: "handoff",
        words: "--moves 1000",
        short: "--moves 20 --store sqlite",
        repeats: true,
    },
    Campaign { name: "etcd-faults", words: "--rounds 4", short: "--rounds 1", repeats: true },
    Campaign {
        name: "etcd-network",
        words: "--partitions 100 --pauses 100 --seed {seed}",
        short: "--partitions 2 --pauses 2 --seed {seed} --etcd installed",
        repeats: true,
    },
    Campaign { name: "soak", words: "", short: "--seconds 5 --tenants 4", repeats: true },
    Campaign { name: "tla", words: "", short: "--short", repeats: false },
    Campaign { name: "check-model", words: "", short: "--short", repeats: false },
    Campaign { name: "mutants", words: "", short: "--short", repeats: false },
    Campaign {
        name: "fuzz",
        words: "--all --runs {sum}5000000 --jobs 2 --progress {directory}/fuzz.progress",
        short: "job --runs 1000",
        repeats: true,
    },
    Campaign { name: "fuzz --sanitizer", words: "20", short: "1", repeats: true },
    Campaign {
        name: "mutation",
        words: "--seed {seed}",
        short: "--area task --sample 2 --seed {seed}",
        repeats: true,
    },
];

impl Campaign {
    fn words(&self, round: u64, is_short: bool, directory: &Path) -> Vec<String> {
        let text = if is_short { self.short } else { self.words };
        let place = directory.display().to_string();
        let word = |word: &str| {
            let word =
                word.replace("{directory}", &place).replace("{seed}", &(SEED + round).to_string());
            if let Some(size) = word.strip_prefix("{next}") {
                return (number(size) * round).to_string();
            }
            match word.strip_prefix("{sum}") {
                Some(size) => (number(size) * (round + 1)).to_string(),
                None => word,
            }
        };
        text.split_whitespace().map(word).collect()
    }
}

fn number(size: &str) -> u64 {
    size.parse().expect("the sizes of campaigns are numbers")
}

/// The parsed command line.
#[derive(Debug, PartialEq)]
struct Options {
    hours: f64,
    is_short: bool,
    only: Option<String>,
    report: Option<PathBuf>,
}

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let options = parse(arguments)?;
    let workspace = Workspace::load()?;
    let directory = workspace.target.join(DIRECTORY);
    let made = Made::now("nightly", arguments)?;
    let is_wanted =
        |campaign: &&Campaign| options.only.as_ref().is_none_or(|only| only == campaign.name);
    let campaigns: Vec<&Campaign> = CAMPAIGNS.iter().filter(is_wanted).collect();
    let mut state = State::load(&directory.join("state"), &saved::commit()?)?;
    let order = Order { campaigns: &campaigns, options: &options, directory: &directory };
    order.run_rounds(&mut state, &|words| figures::xtask(words))?;
    let parts = order.finished(&state);
    let report = report(&parts);
    match &options.report {
        Some(file) => fs::write(file, &report).map_err(|error| unwritten(file, &error))?,
        None => saved::NIGHTLY.save(&report, &made)?,
    }
    println!("{report}");
    verdict(&parts)?;
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options { hours: -1.0, is_short: false, only: None, report: None };
    let mut words = arguments.iter();
    let refused = |why: &str| Failure::usage("nightly", why, USAGE);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| refused("a value is missing"));
        match word.as_str() {
            "--hours" => {
                let hours = value()?.parse().ok().filter(|hours: &f64| *hours >= 0.0);
                options.hours = hours.ok_or_else(|| refused("the hours are no number"))?;
            }
            "--short" => options.is_short = true,
            "--only" => {
                let name = value()?;
                if !CAMPAIGNS.iter().any(|campaign| campaign.name == name) {
                    return Err(refused("there is no campaign of that name"));
                }
                options.only = Some(name.clone());
            }
            "--report" => options.report = Some(value()?.into()),
            _ => return Err(refused("it is not understood")),
        }
    }
    if options.hours < 0.0 {
        return Err(refused("the number of hours is missing"));
    }
    // Figures of a test are no report.
    if (options.is_short || options.only.is_some()) && options.report.is_none() {
        return Err(refused("only a complete night is saved; name a file with --report"));
    }
    Ok(options)
}

/// The campaigns of a night, with their options.
struct Order<'a> {
    campaigns: &'a [&'a Campaign],
    options: &'a Options,
    directory: &'a Path,
}

/// Makes the command of a part.
type Start<'a> = dyn Fn(&[String]) -> Result<Command, Failure> + 'a;

impl Order<'_> {
    /// Runs the parts that are not finished: the first round, and others while there is time.
    fn run_rounds(&self, state: &mut State, start: &Start<'_>) -> Result<(), Failure> {
        for round in 0.. {
            let campaigns = self.campaigns.iter().filter(|it| round == 0 || it.repeats);
            let mut is_empty = true;
            for campaign in campaigns {
                // Time counts over all interruptions, or else each would begin the night anew.
                let is_over = state.seconds() >= self.options.hours * SECONDS_PER_HOUR;
                if round > 0 && is_over {
                    return Ok(());
                }
                is_empty = false;
                let words = campaign.words(round, self.options.is_short, self.directory);
                if state.find(campaign.name, round, &words).is_none() {
                    let part = self.run_part(campaign.name, round, words, start)?;
                    state.add(part)?;
                }
            }
            if is_empty {
                return Ok(());
            }
        }
        Ok(())
    }

    fn run_part(
        &self,
        name: &str,
        round: u64,
        words: Vec<String>,
        start: &Start<'_>,
    ) -> Result<Part, Failure> {
        let log = self.directory.join(format!("{}-{round}.log", name.replace(' ', "")));
        eprintln!("== {name} {}, output in {}", words.join(" "), log.display());
        let file = File::create(&log).map_err(|error| unwritten(&log, &error))?;
        let errors = file.try_clone().map_err(|error| unwritten(&log, &error))?;
        let all: Vec<String> =
            name.split(' ').map(str::to_owned).chain(words.iter().cloned()).collect();
        let started = Instant::now();
        let status = start(&all)?.stdout(file).stderr(errors).status();
        let status = status.map_err(|error| unwritten(&log, &error))?;
        let output = fs::read(&log).map_err(|error| unwritten(&log, &error))?;
        let output = String::from_utf8_lossy(&output);
        let ended = match status.success() {
            true if output.lines().any(|line| line.starts_with(NOT_RUN)) => Ended::Skipped,
            true => Ended::Passed,
            false => Ended::Failed,
        };
        let part = Part {
            name: name.to_owned(),
            round,
            words,
            ended,
            seconds: started.elapsed().as_secs(),
            last: last_line(&output),
        };
        eprintln!("   {} after {} s", part.result(), part.seconds);
        Ok(part)
    }

    /// Returns the finished parts of this order, by campaign and round.
    fn finished<'s>(&self, state: &'s State) -> Vec<&'s Part> {
        let parts = |campaign: &&&Campaign| {
            let of_order = |part: &&Part| {
                part.name == campaign.name
                    && part.words
                        == campaign.words(part.round, self.options.is_short, self.directory)
            };
            state.parts().iter().filter(of_order).collect::<Vec<_>>()
        };
        self.campaigns.iter().flat_map(|campaign| parts(&campaign)).collect()
    }
}

/// Length of the last line in the report.
const LAST_LINE_MAX: usize = 120;

/// Returns the last line of an output, in which campaigns say what they came to.
fn last_line(output: &str) -> String {
    let line = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
    // A cell of the report's table is one line without bars.
    let line = line.unwrap_or_default().trim_matches('|').replace(['|', '\t'], "·");
    line.trim().chars().take(LAST_LINE_MAX).collect()
}

fn report(parts: &[&Part]) -> String {
    let count = |ended| parts.iter().filter(|part| part.ended == ended).count();
    let (failed, skipped) = (count(Ended::Failed), count(Ended::Skipped));
    let seconds: u64 = parts.iter().map(|part| part.seconds).sum();
    let mut text = format!(
        "{} parts, {failed} failed, {skipped} skipped in part, {:.1} hours.\n\n\
         | campaign | round | arguments | result | time | last line of its output |\n\
         |---|---:|---|---|---:|---|\n",
        parts.len(),
        seconds as f64 / SECONDS_PER_HOUR,
    );
    for part in parts {
        let Part { name, round, seconds, last, .. } = part;
        // Paths of a machine are not for the documentation.
        let words: Vec<&str> = part
            .words
            .iter()
            .map(|word| if word.starts_with('/') { "FILE" } else { word })
            .collect();
        let (words, result) = (words.join(" "), part.result());
        text.push_str(&format!(
            "| {name} | {} | `{words}` | {result} | {seconds} s | {last} |\n",
            round + 1
        ));
    }
    text
}

/// Fails if a part failed.
fn verdict(parts: &[&Part]) -> Result<(), Failure> {
    let failed: Vec<String> = parts
        .iter()
        .filter(|part| part.ended == Ended::Failed)
        .map(|part| format!("{} (round {})", part.name, part.round + 1))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!("{} parts of the night failed", failed.len()),
        failed.join(", "),
        "read their outputs in target/nightly; a part runs again after a commit",
    ))
}

fn unwritten(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{} was not written", file.display()), error.to_string(), "check the disk")
}

#[cfg(test)]
#[path = "nightly_tests.rs"]
mod tests;
