//! Runs the scripts on the in-memory coordinator and checks their coverage matrix.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use gossip_coordination::{
    CollectEvents, CoordinatorRuntimeConfig, EventCollector, InMemoryCoordinator,
    StateTransitionEvent,
};

use super::ladder_tests::{LADDERS, Ladder};
use super::{Cell, Order, Report, ScriptBackend, WorldSettings, check_scripts};

/// `GOSSIP_REWRITE=1 cargo test -p gossip-conformance golden` rewrites every script.
const REWRITE: &str = "GOSSIP_REWRITE";

/// Minimum number of files that add coverage: one situation per file.
const FILES_MIN: usize = 150;

/// The report of all scripts, which run once for all tests.
static REPORT: LazyLock<Report> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "the switch that rewrites the scripts")]
    let rewrite = std::env::var(REWRITE).is_ok();
    check_scripts(&mut InMemory, rewrite).expect("the scripts are readable")
});

struct InMemory;

impl ScriptBackend for InMemory {
    type Coordinator = InMemoryCoordinator;

    fn start(&mut self, settings: WorldSettings) -> Option<InMemoryCoordinator> {
        let usual = CoordinatorRuntimeConfig::default();
        Some(InMemoryCoordinator::new(CoordinatorRuntimeConfig {
            max_shards_per_tenant: settings
                .max_shards_per_tenant
                .unwrap_or(usual.max_shards_per_tenant),
            max_total_shards: settings.max_total_shards.unwrap_or(usual.max_total_shards),
            claim_cooldown_interval: settings.claim_cooldown.unwrap_or(0),
            slab_capacity: settings.slab_bytes.unwrap_or(4 << 20),
        }))
    }

    fn observe<R>(
        coordinator: &mut InMemoryCoordinator,
        call: impl FnOnce(&mut InMemoryCoordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

#[test]
fn golden_scripts_are_answered_as_written() {
    let failures = REPORT.failures.join("\n");
    assert!(failures.is_empty(), "{failures}\n{REWRITE}=1 rewrites the scripts");
    assert!(REPORT.skipped.is_empty(), "the in-memory coordinator runs every script");
}

#[test]
fn golden_scripts_leave_no_cell_of_the_matrix_empty() {
    let report = &*REPORT;
    let covered: BTreeSet<&Cell> = report.files.iter().flat_map(|file| &file.cells).collect();
    let shown: BTreeSet<&Order> = report.files.iter().flat_map(|file| &file.orders).collect();
    let cells: BTreeSet<Cell> = LADDERS.iter().flat_map(Ladder::cells).collect();
    let orders: BTreeSet<Order> = LADDERS.iter().flat_map(Ladder::orders).collect();
    let counted = files_with_something_new(report);
    print_matrix(&covered, &shown);
    println!(
        "{} cells, {} orders, {} files, {counted} of which add coverage",
        cells.len(),
        orders.len(),
        report.files.len()
    );

    let empty: Vec<String> = cells
        .iter()
        .filter(|cell| !covered.contains(cell))
        .map(ToString::to_string)
        .chain(orders.iter().filter(|order| !shown.contains(order)).map(ToString::to_string))
        .collect();
    assert!(empty.is_empty(), "{} empty cells:\n{}", empty.len(), empty.join("\n"));
    let unknown: Vec<String> =
        covered.iter().filter(|cell| !cells.contains(**cell)).map(ToString::to_string).collect();
    assert!(unknown.is_empty(), "answers that no ladder lists: {}", unknown.join(", "));
    assert!(counted >= FILES_MIN, "only {counted} files add coverage");
}

/// Returns the number of files with coverage that no earlier file has.
fn files_with_something_new(report: &Report) -> usize {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut counted = 0;
    for file in &report.files {
        let known = seen.len();
        seen.extend(file.cells.iter().map(ToString::to_string));
        seen.extend(file.orders.iter().map(ToString::to_string));
        counted += usize::from(seen.len() > known);
    }
    counted
}

fn print_matrix(covered: &BTreeSet<&Cell>, shown: &BTreeSet<&Order>) {
    for ladder in &LADDERS {
        println!("{}", ladder.operation);
        for cell in ladder.cells() {
            println!("  {} {}", mark(covered.contains(&cell)), cell.answer);
        }
        for order in ladder.orders() {
            println!("  {} {} < {}", mark(shown.contains(&order)), order.first, order.second);
        }
    }
}

const fn mark(covered: bool) -> char {
    if covered { 'x' } else { ' ' }
}
