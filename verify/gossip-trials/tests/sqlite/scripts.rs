//! Golden scripts by several real processes on one file: each command goes to the next process,
//! which knows nothing of the commands before it but what lies in the file.

use gossip_conformance::testscript::{Casting, Line, Troupe, check_scripts_on, is_for_memory_only};

use crate::support::{PROCESSES, Process, Scratch};

#[test]
fn golden_scripts_by_processes_in_turn_are_answered_as_written() {
    let scratch = Scratch::in_memory("scripts");
    let mut processes: Vec<_> =
        (0..PROCESSES).map(|_| Process::start("act", scratch.path())).collect();
    let lines =
        processes.iter_mut().map(|process| Box::new(|line: &str| process.answer(line)) as Line<'_>);
    let mut troupe = Troupe::new(lines.collect(), Casting::InTurn);
    let report = check_scripts_on(&mut troupe, false).expect("the scripts can be read");
    println!("{} played, {} skipped", report.files.len(), report.skipped.len());
    let failures = report.failures.join("\n");
    assert!(failures.is_empty(), "{failures}");
    assert!(report.skipped.iter().all(|name| is_for_memory_only(name)), "{:?}", report.skipped);
    assert!(report.files.len() > 150);
}
