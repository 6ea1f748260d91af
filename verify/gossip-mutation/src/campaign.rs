//! One campaign: generates, builds, runs, and reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use gossip_mutants::copy;

use crate::area::{Area, Program};
use crate::build::{self, Built, Places};
use crate::equivalent;
use crate::progress::Progress;
use crate::report::{Report, Row};
use crate::source::{Sources, seeded};
use crate::trial::{Limited, Outcome};

/// Mutants that run at a time. Tests use several threads, so more gain little on two cores.
const JOBS: usize = 2;

/// Options of a campaign.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "data")]
pub struct Options {
    /// The only area, if not all.
    pub area: Option<String>,
    /// The size of samples, if not the usual one.
    pub sample: Option<usize>,
    /// Whether every mutant runs.
    pub runs_all: bool,
    /// Draws the samples.
    pub seed: u64,
    /// Text that the names of the mutants must contain.
    pub matching: Option<String>,
}

/// Runs a campaign over the areas of the workspace.
///
/// # Errors
///
/// If the workspace cannot be read or built, or a test fails without a mutant.
pub fn run(
    places: &Places,
    areas: &[Area],
    equivalent: &str,
    options: &Options,
) -> Result<Report, String> {
    let equivalent = equivalent::parse(equivalent)?;
    let files = copy::tracked(&places.root)?;
    let sources = Sources::load(&places.root, &files, areas)?;
    eprintln!("{} places to change", sources.mutants.len());
    let state = places.copy.with_file_name("progress");
    let mut progress = Progress::open(&state, sources.hash)?;
    let is_wanted = |area: &&Area| options.area.as_ref().is_none_or(|name| name == area.name);
    let wanted: Vec<&Area> = areas.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = areas.iter().map(|area| area.name).collect();
        return Err(format!("the areas are {}", names.join(", ")));
    }
    let mut programs: Vec<Program> = Vec::new();
    for program in areas.iter().flat_map(|area| area.programs) {
        if !programs.contains(program) {
            programs.push(*program);
        }
    }
    let (edited, built) = build::build(places, &files, &sources, &mut progress, &programs)?;
    let mut report = Report { rows: Vec::new(), unknown: Vec::new() };
    let mut left_out = progress.choice.dropped.clone();
    left_out.extend(&edited.not_generated);
    let progress = Mutex::new(progress);
    let scratch = places.copy.with_file_name("scratch");
    for area in wanted {
        let all: Vec<u32> = numbers(&sources, areas, area);
        let viable: Vec<u32> = all.iter().copied().filter(|it| !left_out.contains(it)).collect();
        let chosen = choose(&viable, &sources, &equivalent, area, options);
        if chosen.is_empty() && options.matching.is_some() {
            continue;
        }
        run_area(area, &chosen, &built, &progress, &scratch)?;
        let progress = progress.lock().expect("no holder of the lock panics");
        let const_only = all.iter().filter(|it| edited.not_generated.contains(it)).count();
        let mut row = Row::new(area, all.len() - const_only, const_only, viable.len());
        for number in chosen {
            let mutant = sources.mutant(number);
            let (outcome, _) = &progress.outcomes[&number];
            row.add(mutant, *outcome, equivalent.contains_key(&mutant.identity()));
        }
        report.rows.push(row);
    }
    let known: BTreeSet<String> = sources.mutants.iter().map(|it| it.identity()).collect();
    let unknown = equivalent.into_keys().filter(|identity| !known.contains(identity));
    report.unknown = unknown.collect();
    Ok(report)
}

/// Returns the places that can be changed, each with the number that the progress file uses.
///
/// # Errors
///
/// If the workspace cannot be read.
pub fn list(root: &Path, areas: &[Area]) -> Result<String, String> {
    let sources = Sources::load(root, &copy::tracked(root)?, areas)?;
    let lines = sources.numbered().map(|(number, it)| format!("{number} {}\n", it.identity()));
    Ok(lines.collect())
}

/// Returns the mutants whose file belongs to the area.
fn numbers(sources: &Sources, areas: &[Area], area: &Area) -> Vec<u32> {
    let is_of = |file: &str| {
        areas.iter().find(|it| it.contains(file)).is_some_and(|first| first.name == area.name)
    };
    let numbered = sources.numbered().filter(|(_, mutant)| is_of(&mutant.file));
    numbered.map(|(number, _)| number).collect()
}

/// Returns the mutants that run: in the order of the seed, until the sample has enough that are
/// not equivalent.
fn choose(
    viable: &[u32],
    sources: &Sources,
    equivalent: &BTreeMap<String, String>,
    area: &Area,
    options: &Options,
) -> Vec<u32> {
    let identity = |number: u32| sources.mutant(number).identity();
    if let Some(text) = &options.matching {
        let matches = |number: &u32| identity(*number).contains(text.as_str());
        return viable.iter().copied().filter(matches).collect();
    }
    let mut order = viable.to_vec();
    order.sort_by_cached_key(|number| seeded(options.seed, &identity(*number)));
    let size = match (options.runs_all, options.sample, area.sample) {
        (true, ..) | (false, None, None) => usize::MAX,
        (false, Some(size), _) | (false, None, Some(size)) => size,
    };
    let mut count = 0;
    let is_in = |number: &u32| {
        count += usize::from(!equivalent.contains_key(&identity(*number)));
        count <= size
    };
    order.into_iter().take_while(is_in).collect()
}

/// Runs the programs one after the other, each with the mutants that passed those before: slow
/// programs run last, with few mutants.
fn run_area(
    area: &Area,
    chosen: &[u32],
    built: &[Built],
    progress: &Mutex<Progress>,
    scratch: &Path,
) -> Result<(), String> {
    for (index, program) in area.programs.iter().enumerate() {
        let left: Vec<u32> = {
            let progress = progress.lock().expect("no holder of the lock panics");
            let is_left = |number: &u32| {
                let passed = progress.passed.get(number).copied().unwrap_or_default();
                !progress.outcomes.contains_key(number) && passed <= index
            };
            chosen.iter().copied().filter(is_left).collect()
        };
        if left.is_empty() {
            continue;
        }
        let one = built.iter().find(|one| one.program == *program);
        let one = one.expect("the programs of every area are built").clone();
        let program = Limited::measure(one, &scratch.join("measure"))?;
        eprintln!("== {}: {} mutants run with {program}", area.name, left.len());
        let is_last = index + 1 == area.programs.len();
        in_parallel(left, scratch, &|mutant, scratch| {
            let (outcome, by) = program.run(mutant, scratch)?;
            let mut progress = progress.lock().expect("no holder of the lock panics");
            if outcome == Outcome::Missed && !is_last {
                return progress.record_passed(mutant, index + 1);
            }
            progress.record(mutant, outcome, by)
        })?;
    }
    Ok(())
}

/// Calls `work` for every mutant, with a directory of its own.
fn in_parallel(
    mutants: Vec<u32>,
    scratch: &Path,
    work: &(dyn Fn(u32, &Path) -> Result<(), String> + Sync),
) -> Result<(), String> {
    let queue = Mutex::new(mutants.into_iter());
    let job = |number: usize| -> Result<(), String> {
        let scratch = scratch.join(number.to_string());
        loop {
            let next = queue.lock().expect("no holder of the lock panics").next();
            let Some(mutant) = next else { return Ok(()) };
            work(mutant, &scratch)?;
        }
    };
    thread::scope(|scope| {
        let job = &job;
        let jobs: Vec<_> = (0..JOBS).map(|number| scope.spawn(move || job(number))).collect();
        let ended = jobs.into_iter().map(|job| job.join().expect("a job does not panic"));
        ended.collect::<Result<Vec<()>, String>>().map(|_| ())
    })
}
