//! Processes that hammer one run on one file and are left alone.

use std::path::Path;

use crate::Failure;
use crate::process::own_program;
use crate::sqlite::book::Book;
use crate::sqlite::journal::read;
use crate::sqlite::kill::quiet;
use crate::sqlite::work::{THREADS, journal_of};
use crate::sqlite::world::{SHARDS_MAX, found, open};

/// Lets `processes` ask for `operations` leases per thread each, and looks at what came of it.
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
    let mut book = Book::default();
    for journal in &journals {
        book.enter(&read(journal)?)?;
    }
    let shards = book.check(&open(&file)?)?;
    if shards != SHARDS_MAX {
        let what = format!("{shards} shards; the race shall end at its limit of {SHARDS_MAX}");
        return Err(what.into());
    }
    let Book { asked_count, acknowledged_count, .. } = book;
    Ok(format!(
        "{processes} processes: {asked_count} calls asked for, {acknowledged_count} acknowledged, \
         {shards} shards of at most {SHARDS_MAX}, no fence given twice"
    ))
}
