//! The hall of known bugs, for `cargo xtask hall`: every planted bug, and who finds it.
//!
//! ```text
//! RUSTFLAGS="--cfg planted_bugs" cargo run --release -p gossip-sim-handoff \
//!     --example hall
//! ```
//!
//! It prints a table as Markdown. The exit code is 1 if a bug was not found, and 2 if the switches
//! were not compiled in.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program: its output is its use")]

use std::panic;
use std::process::ExitCode;
use std::time::Duration;

use gossip_coordination::mutants::{self, Guards, HAS_SWITCHES, Hunter, Mutant, Part};
use gossip_sim::model::{Rule, Scale, Strictness, configuration, search};
use gossip_sim::{self as sim, FaultSet, OPERATIONS_DEFAULT, Plan, Simulator};
use gossip_sim_handoff::search::{self as moves, Budget, explore};

/// Worlds in which a bug is looked for.
const SEEDS_MAX: u64 = 200;

/// More than the searches of planned moves need.
const STATES_MAX: u64 = 20_000_000;

/// What the searches of planned moves may use up.
const BUDGET: Budget = Budget { faults: 0, crashes: 1, renewals: 0, takeovers: 1, ticks: 5 };

fn main() -> ExitCode {
    if !HAS_SWITCHES {
        eprintln!("no bug can be planted in this build; use `cargo xtask hall`");
        return ExitCode::from(2);
    }
    // Some bugs end in a panic, which is how they are found.
    panic::set_hook(Box::new(|_| ()));
    println!("| bug | in | what | story | found by | rule | after | time | guard |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let engine = Mutant::ALL.iter().map(|mutant| hunt_mutant(*mutant));
    let simulated = sim::Bug::ALL.iter().map(|bug| hunt_simulated(*bug));
    let planned = moves::Bug::ALL.iter().map(|bug| hunt_planned(*bug));
    let mut times = Vec::new();
    let mut hidden = 0;
    for row in engine.chain(simulated).chain(planned) {
        println!("{}", row.line());
        match row.found {
            Some(found) => times.push(found.time),
            None => hidden += 1,
        }
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let slowest = times.last().copied().unwrap_or_default();
    let (count, found) = (times.len() + hidden, times.len());
    println!(
        "\n{found} of {count} bugs were found, {} of them in the engine itself.",
        Mutant::ALL.len()
    );
    println!("Median time {}, longest {}.", shown(median), shown(slowest));
    if hidden == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One line of the table.
struct Row {
    name: String,
    place: &'static str,
    what: &'static str,
    story: &'static str,
    hunter: String,
    found: Option<Found>,
}

/// How a bug was found.
struct Found {
    rule: String,
    /// What was looked at until then.
    after: String,
    time: Duration,
    /// Whether a guard of the kernel stops it before anything is stored.
    is_guarded: bool,
}

impl Row {
    fn line(&self) -> String {
        let Self { name, place, what, story, hunter, found } = self;
        let end = match found {
            Some(Found { rule, after, time, is_guarded }) => {
                let guard = if *is_guarded { "yes" } else { "" };
                format!("{rule} | {after} | {} | {guard}", shown(*time))
            }
            None => "**not found** | | |".to_owned(),
        };
        format!("| {name} | {place} | {what} | {story} | {hunter} | {end} |")
    }
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn hunt_mutant(mutant: Mutant) -> Row {
    let place = match mutant.part() {
        Part::Kernel => "kernel",
        Part::Store => "store layer",
        Part::Codec => "codec",
    };
    let (hunter, found) = match mutant.hunter() {
        Hunter::Model(world) => (format!("model, `{world}`"), search_for(mutant, world)),
        Hunter::Simulator => ("simulator".to_owned(), play_mutant(mutant, None)),
        Hunter::Faults(list) => {
            (format!("simulator, `{list}` alone"), play_mutant(mutant, FaultSet::parse(list)))
        }
    };
    let (what, story) = (mutant.what(), mutant.story());
    Row { name: mutant.name().to_owned(), place, what, story, hunter, found }
}

/// Looks for a bug in everything that can happen in a small world.
fn search_for(mutant: Mutant, world: &str) -> Option<Found> {
    let config = configuration(world, Scale::Short)?;
    let hunt =
        |guards| mutants::with(mutant, guards, || search(config, Strictness::Records, usize::MAX));
    let (report, time) = timed(|| hunt(Guards::Off));
    let finding = report.finding?;
    let after = format!("{} states, {} steps", report.states, finding.trace.len());
    let guarded = hunt(Guards::On).finding.map(|finding| finding.violation.rule);
    let is_guarded = guarded == Some(Rule::Panicked) && finding.violation.rule != Rule::Panicked;
    Some(Found { rule: format!("{:?}", finding.violation.rule), after, time, is_guarded })
}

/// Looks for a bug in simulated worlds; in those of certain faults alone, keys are tied to
/// processes.
fn play_mutant(mutant: Mutant, faults: Option<FaultSet>) -> Option<Found> {
    play_for(None, |plan| {
        let alone = faults.is_some();
        let faults = faults.unwrap_or(plan.faults);
        let plan = Plan { faults, binds: plan.binds || alone, ..plan.clone() };
        mutants::with(mutant, Guards::Off, || Simulator::new().play(&plan))
    })
}

/// Looks for a bug in one simulated world after the other.
fn play_for(
    bug: Option<sim::Bug>,
    play: impl Fn(&Plan) -> Result<sim::Report, sim::Failure>,
) -> Option<Found> {
    let mut operations = 0;
    let (found, time) = timed(|| {
        (1..=SEEDS_MAX).find_map(|seed| {
            let plan = Plan { bug, ..Plan::of_seed(seed, OPERATIONS_DEFAULT, None) };
            match play(&plan) {
                Ok(report) => {
                    operations += report.operations;
                    None
                }
                Err(failure) => Some((seed, failure)),
            }
        })
    });
    let (seeds, failure) = found?;
    let after = format!("{seeds} worlds, {} operations", operations + failure.operations);
    Some(Found { rule: format!("{:?}", failure.violation.rule), after, time, is_guarded: false })
}

fn hunt_simulated(bug: sim::Bug) -> Row {
    let (what, story) = simulated(bug);
    Row {
        name: format!("{bug:?}"),
        place: "what the simulated store shows, keeps or says",
        what,
        story,
        hunter: "simulator".to_owned(),
        found: play_for(Some(bug), |plan| Simulator::new().play(plan)),
    }
}

/// What is wrong, and where it comes from.
const fn simulated(bug: sim::Bug) -> (&'static str, &'static str) {
    use sim::Bug;
    const ABOVE: &str = "as in the engine above, behind the real flights and with every fault";
    match bug {
        Bug::FenceIgnored => ("Whoever asks is shown to be the holder.", ABOVE),
        Bug::ExpiryInclusive => ("A lease is shown to last one tick longer.", ABOVE),
        Bug::EarlyTakeover => (
            "A lease is shown to end before it does.",
            "leader election by clocks that are trusted to agree (client-go's documentation warns \
             of it)",
        ),
        Bug::CheckpointLost => ("A checkpoint is acknowledged and not stored.", ABOVE),
        Bug::RenewalLost => ("A renewal is acknowledged and not stored.", ABOVE),
        Bug::ChildLost => ("The last child of a replacing split is not stored.", ABOVE),
        Bug::CursorReset => ("A grant is stored without the cursor.", ABOVE),
        Bug::FenceReusedAfterRevoke => ("A revocation is stored with the old fence.", ABOVE),
        Bug::ShardNotCompared => ("The store does not compare the shard.", ABOVE),
        Bug::RunNotCompared => ("The store does not compare the run.", ABOVE),
        Bug::CountersNotCompared => ("The store does not compare the counters.", ABOVE),
        Bug::AppliedTakenForConflict => (
            "The store says conflict of a commit that it applied.",
            "a driver that tries again by itself after a timeout, and meets its own write",
        ),
        Bug::ConflictTakenForApplied => (
            "The store says applied of a commit that it refused.",
            "a proxy or driver that loses the outcome of a conditional write",
        ),
        Bug::SinkIgnoresFence => (
            "The sink takes every write.",
            "fences that are counted and passed on, and checked by nobody",
        ),
    }
}

fn hunt_planned(bug: moves::Bug) -> Row {
    let (what, story) = (bug.what(), story_of(bug));
    let (report, time) = timed(|| explore(BUDGET, Some(bug), STATES_MAX));
    let found = report.finding.map(|finding| Found {
        rule: format!("{:?}", finding.broken),
        after: format!("{} states, {} steps", report.states, finding.way.len()),
        time,
        is_guarded: false,
    });
    let place = "what the source of a move is told";
    let (name, hunter) = (format!("{bug:?}"), "search of planned moves".to_owned());
    Row { name, place, what, story, hunter, found }
}

/// Where it comes from.
const fn story_of(bug: moves::Bug) -> &'static str {
    use moves::Bug;
    match bug {
        Bug::ResumesWithoutWithdrawing => {
            "a timeout taken for a refusal: the other side may still accept"
        }
        Bug::RollsBackAfterAccept => "rollback after the acknowledgement leaves two owners",
        Bug::ForwardOnForeignId => "recovery that looks at a counter and not at whose count it is",
        Bug::RollsBackWithoutWithdrawing => {
            "a handoff stranded between two phases, and tidied up too early"
        }
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    #[expect(clippy::disallowed_methods, reason = "a hunt takes no time, its reader does")]
    let start = std::time::Instant::now();
    let result = work();
    (result, start.elapsed())
}
