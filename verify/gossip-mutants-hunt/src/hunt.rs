//! The hunt: runs layers on mutants and checks the results.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gossip_mutants::catalog::{Catalog, KERNEL, Layer, Mutant};

use crate::engine;
use crate::task::{Outcome, Setting, Task, TestProgram};

/// Worlds that a simulator runs at most for a mutant that it must find.
const SEEDS: u64 = 200;

/// Worlds of certain faults alone that must not reveal a mutant.
const HIDDEN_SEEDS: u64 = 8;

/// Layers that a kernel mutant must be found by.
const KERNEL_LAYERS_MIN: usize = 2;

/// Parts of the engine, on which all its layers are tried.
const ENGINE: [&str; 3] = [KERNEL, "store", "codec"];

/// The package of the engine's own tests.
const ENGINE_TESTS: &str = "gossip-coordination";

/// Options of a hunt.
#[derive(Debug)]
pub(crate) struct Options {
    /// Whether only the first layer of each mutant is tried.
    pub(crate) is_short: bool,
    /// The only mutant, if not all.
    pub(crate) only: Option<String>,
    pub(crate) programs: Vec<TestProgram>,
}

/// A mutant with the results of its layers.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) part: &'static str,
    pub(crate) what: &'static str,
    pub(crate) story: &'static str,
    pub(crate) tries: Vec<Try>,
    /// Whether an assertion of the kernel stops the mutant before anything is stored.
    pub(crate) is_guarded: bool,
}

/// One task on one mutant.
#[derive(Debug)]
pub(crate) struct Try {
    pub(crate) task: Task,
    /// Which column it belongs to.
    pub(crate) kind: &'static str,
    pub(crate) expectation: Expectation,
    pub(crate) outcome: Option<Outcome>,
}

/// Expected result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    Found,
    Hidden,
    /// The layer may find the mutant or not.
    Any,
}

/// A finished hunt.
#[derive(Debug)]
pub(crate) struct Hunt {
    pub(crate) rows: Vec<Row>,
    /// Layers that found something when no mutant was active.
    false_alarms: Vec<String>,
    pub(crate) is_short: bool,
}

/// Runs a hunt.
///
/// # Errors
///
/// If a task could not be run, or no mutant has the name that was asked for.
pub(crate) fn hunt(catalog: &Catalog, options: &Options) -> Result<Hunt, String> {
    let mut rows = rows(catalog, options);
    if rows.is_empty() {
        return Err("there is no mutant of that name".to_owned());
    }
    let setting = Setting { programs: options.programs.clone(), seeds: SEEDS };
    let hidden = Setting { programs: Vec::new(), seeds: HIDDEN_SEEDS };
    let jobs: Vec<(usize, usize)> = rows
        .iter()
        .enumerate()
        .flat_map(|(row, it)| (0..it.tries.len()).map(move |place| (row, place)))
        .collect();
    let outcomes = in_parallel(&jobs, |(row, place)| {
        let row = &rows[*row];
        let this = &row.tries[*place];
        let needs_switch = matches!(this.task, Task::Layer(_));
        let mutant = needs_switch.then_some(row.name.as_str());
        let is_hidden = this.expectation == Expectation::Hidden;
        this.task.run(mutant, false, if is_hidden { &hidden } else { &setting })
    })?;
    for ((row, place), outcome) in jobs.into_iter().zip(outcomes) {
        rows[row].tries[place].outcome = Some(outcome);
    }
    if !options.is_short {
        find_guarded(&mut rows, &setting)?;
    }
    let false_alarms = false_alarms(&rows, options, &setting)?;
    Ok(Hunt { rows, false_alarms, is_short: options.is_short })
}

fn rows(catalog: &Catalog, options: &Options) -> Vec<Row> {
    let is_wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let of_catalog = catalog.mutants.iter().filter(|mutant| is_wanted(mutant.name));
    let mut rows: Vec<Row> = of_catalog.map(|mutant| row(mutant, options)).collect();
    if options.is_short {
        return rows;
    }
    let plain = |part, kind, (name, what, story): (String, _, _), task| Row {
        name,
        part,
        what,
        story,
        tries: vec![Try { task, kind, expectation: Expectation::Found, outcome: None }],
        is_guarded: false,
    };
    let store = engine::store_mutants().into_iter().filter(|(name, ..)| is_wanted(name));
    rows.extend(store.map(|it| {
        let task = Task::StoreMutant(it.0.clone());
        plain("simulated store", "simulator", it, task)
    }));
    let handoff = engine::handoff_mutants().into_iter().filter(|(name, ..)| is_wanted(name));
    rows.extend(handoff.map(|it| {
        let task = Task::HandoffMutant(it.0.clone());
        plain("handoff", "model", it, task)
    }));
    rows
}

fn row(mutant: &Mutant, options: &Options) -> Row {
    let one = |layer: Layer, expectation| Try {
        task: Task::Layer(layer),
        kind: layer.kind(),
        expectation,
        outcome: None,
    };
    let listed = mutant.layers.iter().map(|layer| one(*layer, Expectation::Found));
    let mut tries: Vec<Try> = listed.take(if options.is_short { 1 } else { usize::MAX }).collect();
    if !options.is_short {
        tries.extend(mutant.hidden.iter().map(|layer| one(*layer, Expectation::Hidden)));
        let known: BTreeSet<&str> = mutant.layers.iter().map(|layer| layer.kind()).collect();
        let others = [
            Layer::Conformance,
            Layer::Scripts,
            Layer::Tests { package: ENGINE_TESTS, filters: "" },
            Layer::Simulator { rule: None },
        ];
        let is_other = |layer: &Layer| !known.contains(layer.kind());
        let others = others.into_iter().filter(is_other).map(|layer| one(layer, Expectation::Any));
        tries.extend(others.filter(|_| ENGINE.contains(&mutant.part)));
    }
    Row {
        name: mutant.name.to_owned(),
        part: mutant.part,
        what: mutant.what,
        story: mutant.story,
        tries,
        is_guarded: false,
    }
}

/// Searches the model again with the kernel's own assertions: they stop a mutant if every finding
/// becomes a panic.
fn find_guarded(rows: &mut [Row], setting: &Setting) -> Result<(), String> {
    let is_model = |it: &&Try| matches!(it.task, Task::Layer(Layer::Model { .. }));
    let searched = rows.iter().enumerate().filter_map(|(place, row)| {
        let found = row.tries.iter().find(is_model)?;
        Some((place, found.task.clone(), found.rule()?.to_owned()))
    });
    let searched: Vec<_> = searched.filter(|(_, _, rule)| rule != "Panicked").collect();
    let outcomes = in_parallel(&searched, |(place, task, _)| {
        task.run(Some(&rows[*place].name), true, setting)
    })?;
    for ((place, ..), outcome) in searched.into_iter().zip(outcomes) {
        rows[place].is_guarded = outcome.finding.is_some_and(|found| found.rule == "Panicked");
    }
    Ok(())
}

/// Runs every layer without a mutant. A short hunt runs the suites only: its other layers are tests
/// of their own crates.
fn false_alarms(rows: &[Row], options: &Options, setting: &Setting) -> Result<Vec<String>, String> {
    let of_switch = rows.iter().flat_map(|row| &row.tries).filter_map(|it| match it.task {
        Task::Layer(layer) => Some(layer.without_rule()),
        Task::StoreMutant(_) | Task::HandoffMutant(_) => None,
    });
    let is_suite = |layer: &Layer| matches!(layer, Layer::Conformance | Layer::Scripts);
    let layers: BTreeSet<Layer> =
        of_switch.filter(|layer| !options.is_short || is_suite(layer)).collect();
    let layers: Vec<Layer> = layers.into_iter().collect();
    let outcomes = in_parallel(&layers, |layer| Task::Layer(*layer).run(None, true, setting))?;
    let found = layers.iter().zip(outcomes).filter_map(|(layer, outcome)| {
        let finding = outcome.finding?;
        Some(format!("{layer:?}: found without a mutant: {} {}", finding.rule, finding.after))
    });
    Ok(found.collect())
}

/// Runs `work` on all items, as many at a time as there are processors; the results are in the
/// order of the items.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else { return };
                    let result = work(item);
                    results.lock().expect("no thread panics").push((place, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread panics");
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

impl Try {
    /// The rule by which the mutant was found; absent if it was not.
    pub(crate) fn rule(&self) -> Option<&str> {
        let outcome = self.outcome.as_ref()?;
        outcome.finding.as_ref().map(|finding| finding.rule.as_str())
    }

    /// Whether a search of the model found it by as many steps as the shortest way has.
    fn is_shortest(&self) -> bool {
        let Task::Layer(Layer::Model { steps: Some(steps), .. }) = self.task else { return true };
        let found = self.outcome.as_ref().and_then(|outcome| outcome.finding.as_ref());
        found.is_some_and(|finding| finding.after.ends_with(&format!(", {steps} steps")))
    }

    /// Returns the deviations from the expected results.
    fn problem(&self) -> Option<String> {
        let task = &self.task;
        match (self.expectation, self.rule(), task.expected_rule()) {
            (Expectation::Found, None, _) => Some(format!("not found by {task:?}")),
            (Expectation::Hidden, Some(rule), _) => Some(format!("found as {rule} by {task:?}")),
            (Expectation::Found, Some(rule), Some(expected)) if rule != expected => {
                Some(format!("found as {rule}, not as {expected}, by {task:?}"))
            }
            (Expectation::Found, Some(_), _) if !self.is_shortest() => {
                Some(format!("found by another number of steps by {task:?}"))
            }
            _ => None,
        }
    }
}

impl Row {
    /// The kinds of layers that found it.
    pub(crate) fn kinds(&self) -> BTreeSet<&'static str> {
        let is_found = |it: &&Try| it.expectation != Expectation::Hidden && it.rule().is_some();
        self.tries.iter().filter(is_found).map(|it| it.kind).collect()
    }
}

impl Hunt {
    /// Returns all deviations, one line each, with the name of the mutant first.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.false_alarms.clone();
        for row in &self.rows {
            let of_tries = row.tries.iter().filter_map(Try::problem);
            problems.extend(of_tries.map(|problem| format!("{}: {problem}", row.name)));
            let kinds = row.kinds().len();
            if row.part == KERNEL && kinds < KERNEL_LAYERS_MIN && !self.is_short {
                problems.push(format!("{}: found by {kinds} layers only", row.name));
            }
        }
        problems
    }
}
