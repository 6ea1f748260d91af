//! Concurrent processes on one run in one file, without kills.

use std::path::Path;

use crate::Failure;
use crate::process::own_program;
use crate::sqlite::history_check::HistoryCheck;
use crate::sqlite::journal::read;
use crate::sqlite::kill::quiet;
use crate::sqlite::work::{THREADS, journal_of};
use crate::sqlite::world::{SHARDS_MAX, found, open};

/// Runs `processes` with `operations` lease requests per thread each, and checks the store.
pub(crate) fn run(
    directory: &Path,
    processes: u64,
    operations: u64,
    seed: u64,
) -> Result<String, Failure> {
    std::fs::create_dir_all(directory)?;
    let file = directory.join("race.db");
    found(&open(&file)?)?;
    let (mut children, mut journals) = (Vec::new(), Vec::new());
    for worker in 0..processes {
        let journal = directory.join(format!("journal-{worker}"));
        let mut command = own_program()?;
        command.arg("work").arg(&file).arg(&journal);
        command.args([worker, operations, seed].map(|number| number.to_string()));
        children.push(quiet(&mut command).spawn()?);
        journals.extend((0..THREADS).map(|thread| journal_of(&journal, thread)));
    }
    for child in &mut children {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("a process failed: {status}").into());
        }
    }
    let mut history = HistoryCheck::default();
    for journal in &journals {
        history.enter(&read(journal)?)?;
    }
    let shards = history.check(&open(&file)?)?;
    if shards != SHARDS_MAX {
        let what = format!("{shards} shards; expected the limit of {SHARDS_MAX}");
        return Err(what.into());
    }
    let HistoryCheck { asked_count, acknowledged_count, .. } = history;
    Ok(format!(
        "{processes} processes: {asked_count} calls asked for, {acknowledged_count} acknowledged, \
         {shards} shards of at most {SHARDS_MAX}, no fence given twice"
    ))
}
