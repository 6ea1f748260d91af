//! `why`: the cause of the state of a run, a shard or an item, with evidence and the next command.
//!
//! ```text
//!  gather ──► Facts ──► of_run, of_shard, of_item ──► Answer
//!  store,               pure
//!  source, disk
//! ```
//!
//! Nothing is written. Each answer has the name of its incident, which scripts can rely on.

mod answer;
mod facts;
mod item;

use gossip::store::StoreUrl;

use crate::args::{Global, WhyArgs};
use crate::doctor::Space;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::reference::{RunRef, find_shard};
use crate::store;

use self::answer::Answer;
use self::facts::Facts;

/// Explains a run, or one of its shards or items.
pub(crate) fn why(global: &Global, args: &WhyArgs) -> Result<Code, Failure> {
    let url = store::url(global)?;
    // The error is kept, because a full disk is an answer and no failure of this command.
    let (opened, tenant) = (store::open_existing(global), store::tenant(global)?);
    let backend = match (opened, &url) {
        // SQLite needs some room to open a file at all.
        (Err(failure), StoreUrl::Sqlite { path, .. }) if failure.code == Code::Store => {
            let full = Space::at(path).and_then(answer::full_disk).ok_or(failure)?;
            print(global, None, full)?;
            return Ok(Code::Complete);
        }
        (opened, _) => opened?,
    };
    let coordinator = &mut backend.coordinator();
    let run = args.run.unwrap_or(RunRef::Last).find(coordinator, tenant)?;
    let facts = Facts::gather(&backend, &url, tenant, run)?;
    let answer = match (&args.item, args.shard) {
        (_, Some(shard)) => {
            let shard = find_shard(coordinator, tenant, run, shard)?;
            answer::of_shard(&facts, shard)?
        }
        (Some(item), None) => item::explain(&facts, item)?,
        (None, None) => answer::of_run(&facts),
    };
    print(global, Some(&facts), answer)?;
    Ok(Code::Complete)
}

fn print(global: &Global, facts: Option<&Facts>, answer: Answer) -> Result<(), Failure> {
    let record = Record::new();
    let record = match global.output.is_table() {
        true => record
            .with("cause", answer.cause)
            .with("evidence", answer.evidence.join("; "))
            .with("next", answer.next),
        false => record
            .with("run", facts.map(Facts::id))
            .with("incident", answer.incident)
            .with("cause", answer.cause)
            .with("evidence", answer.evidence)
            .with("next", answer.next),
    };
    output::one(global.output, &record)
}
