//! Golden scripts run by several processes on one file. Each command goes to the next process,
//! which shares only the file with the processes of earlier commands.

use gossip_conformance::testscript::{
    Channel, MultiHandle, Routing, check_scripts_on, is_for_memory_only,
};

use crate::support::{PROCESSES, Process, Scratch};

#[test]
fn golden_scripts_by_processes_in_turn_are_answered_as_written() {
    let scratch = Scratch::in_memory("scripts");
    let mut processes: Vec<_> =
        (0..PROCESSES).map(|_| Process::start("serve-scripts", scratch.path())).collect();
    let channels = processes
        .iter_mut()
        .map(|process| Box::new(|line: &str| process.answer(line)) as Channel<'_>);
    let mut handles = MultiHandle::new(channels.collect(), Routing::RoundRobin);
    let report = check_scripts_on(&mut handles, false).expect("the scripts can be read");
    println!("{} run, {} skipped", report.files.len(), report.skipped.len());
    let failures = report.failures.join("\n");
    assert!(failures.is_empty(), "{failures}");
    assert!(report.skipped.iter().all(|name| is_for_memory_only(name)), "{:?}", report.skipped);
    assert!(report.files.len() > 150);
}
