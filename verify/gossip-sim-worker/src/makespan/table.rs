//! The outcomes of many cases as a table.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{iter, thread};

use super::{Case, Outcome, Shape, Way, run};

/// Contents of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many keys each source has.
    pub keys: usize,
    /// Which sources.
    pub shapes: Vec<Shape>,
    /// How many workers, one row each for every source.
    pub workers: Vec<usize>,
    /// Whether to run only the runtime's own policy, without the comparisons.
    pub only_auto: bool,
    /// Number of concurrent cases.
    pub threads: usize,
}

/// Runs every shape with each number of workers in every way, and writes a table of makespan ÷
/// (work / workers), with the splits of the last way and the allowed number.
///
/// The number of threads does not affect the table.
///
/// # Errors
///
/// If writing to `out` fails.
pub fn table(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let cases = plan.cases();
    let outcomes = run_all(&cases, plan.threads);
    out.write_all(HEAD.as_bytes())?;
    let ways = plan.ways().len();
    for (cases, outcomes) in cases.chunks(ways).zip(outcomes.chunks(ways)) {
        out.write_all(row(cases[0], outcomes).as_bytes())?;
    }
    out.flush()
}

/// The ways of the table, in its order.
const WAYS: [Way; 5] = [Way::Static(1), Way::Static(4), Way::Static(16), Way::Bytes, Way::Auto];

const HEAD: &str = "\
| source | workers | static ×1 | ×4 | ×16 | byte midpoints (splits) | **auto** | splits | allowed |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
";

impl Plan {
    /// In the order of the table, the ways of a row side by side.
    fn cases(&self) -> Vec<Case> {
        let keys = self.keys;
        let mut cases = Vec::new();
        for &shape in &self.shapes {
            for &workers in &self.workers {
                cases.extend(self.ways().iter().map(|&way| Case { shape, keys, workers, way }));
            }
        }
        cases
    }

    fn ways(&self) -> &'static [Way] {
        match self.only_auto {
            true => &WAYS[WAYS.len() - 1..],
            false => &WAYS,
        }
    }
}

/// The outcomes in the order of the cases. Those with the most workers take longest and come first,
/// so that the threads end together.
fn run_all(cases: &[Case], threads: usize) -> Vec<Outcome> {
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(cases[*index].workers));
    let (next, outcomes_by_case) =
        (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(cases.len())));
    let work = || {
        let turns = iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        for index in turns.map_while(|turn| order.get(turn)) {
            let outcome = run(cases[*index]);
            outcomes_by_case
                .lock()
                .expect("no thread panics while it holds the lock")
                .push((*index, outcome));
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut outcomes_by_case =
        outcomes_by_case.into_inner().expect("a thread that panics ends the scope");
    outcomes_by_case.sort_by_key(|(index, _)| *index);
    outcomes_by_case.into_iter().map(|(_, outcome)| outcome).collect()
}

fn row(case: Case, outcomes: &[Outcome]) -> String {
    let ratio = |outcome: &Outcome| format!("{:.3}", outcome.ratio(case.workers));
    let cell = match outcomes {
        [one, four, sixteen, bytes, _] => format!(
            "{} | {} | {} | {} ({})",
            ratio(one),
            ratio(four),
            ratio(sixteen),
            ratio(bytes),
            bytes.splits
        ),
        _ => "– | – | – | –".to_owned(),
    };
    let auto = outcomes.last().expect("the runtime's own policy is always run");
    format!(
        "| {} | {} | {cell} | **{}** | {} | {} |\n",
        case.shape.name(),
        case.workers,
        ratio(auto),
        auto.splits,
        auto.splits_allowed(case.workers),
    )
}
