//! Checks the run at the end of a world.

use std::io::Cursor;

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{ParkReason, RunManagement as _, ShardFilter, ShardStatus, ShardSummary};

use super::oracle::{Rule, Violation};
use super::shared_state::{RUN, SharedState, TENANT};
use super::source::ROOT;
use gossip_scanner_runtime::RuntimeToken;
use gossip_scanner_runtime::certificate::{
    Against, CertificateWriter, LeafRecord, LeafStatus, ParkedFor, Request, Verification, verify,
};

/// Checks the end of a run; returns whether every key was processed.
pub(super) fn judge(shared: &SharedState, now: LogicalTime) -> Result<bool, Violation> {
    let rows = rows(shared, now);
    let broken = |rule: Rule, why: String| Err(Violation { rule, why });
    if let Some(row) = rows.iter().find(|row| row.status == ShardStatus::Active) {
        let shard = row.shard.as_raw();
        return broken(
            Rule::NeverSettles,
            format!("all workers have ended, and shard {shard:x} is unfinished"),
        );
    }
    if let Some(row) = rows.iter().find(|row| row.damage.is_some()) {
        let shard = row.shard.as_raw();
        return broken(Rule::NeverSettles, format!("shard {shard:x} is still damaged"));
    }
    let oracle = shared.oracle();
    for (number, entry) in shared.source.entries.iter().enumerate() {
        if oracle.is_done(number) == entry.temper.is_bad() {
            let (done, temper) = (oracle.is_done(number), entry.temper);
            return broken(
                Rule::WronglyParked,
                format!("key {number} is {temper:?}, and done is {done}"),
            );
        }
    }
    drop(oracle);
    let verification = match certificate(&rows, shared) {
        Ok(verification) => verification,
        Err(why) => return broken(Rule::Certificate, why),
    };
    let (keys, bad) = counts(shared);
    let complete = bad == 0;
    let stated = (verification.keys, verification.is_complete());
    if stated != (keys - bad, complete) {
        let why = format!("it states {stated:?}, and {} of {keys} keys are done", keys - bad);
        return broken(Rule::Certificate, why);
    }
    Ok(complete)
}

fn counts(shared: &SharedState) -> (u64, u64) {
    let entries = &shared.source.entries;
    let bad = entries.iter().filter(|entry| entry.temper.is_bad()).count();
    (entries.len() as u64, bad as u64)
}

/// Lists all shards.
pub(super) fn rows(shared: &SharedState, now: LogicalTime) -> Vec<ShardSummary> {
    let mut rows = Vec::new();
    let mut admin = shared.admin();
    admin
        .list_shards_into(now, TENANT, RUN, ShardFilter::all(), &mut rows)
        .expect("the administrator has no faults");
    rows
}

/// Writes a certificate as the CLI does, and verifies it without access to the store.
fn certificate(rows: &[ShardSummary], shared: &SharedState) -> Result<Verification, String> {
    let request = Request::for_range(RUN, "a world", ROOT.0, ROOT.1);
    let leaves = rows.iter().filter(|row| row.status != ShardStatus::Split);
    let mut leaves: Vec<&ShardSummary> = leaves.collect();
    leaves.sort_by(|one, other| one.start.cmp(&other.start));
    let failed = |error: std::io::Error| error.to_string();
    let mut writer = CertificateWriter::new(Vec::new(), &request).map_err(failed)?;
    for row in leaves {
        writer.leaf(&leaf(row)?).map_err(failed)?;
    }
    let file = writer.finish(None).map_err(failed)?;
    let against = Against::ITSELF.with_source(&request, shared.source.plain());
    verify(Cursor::new(file), against).map_err(|refusal| refusal.to_string())
}

fn leaf(row: &ShardSummary) -> Result<LeafRecord, String> {
    let status = match row.park_reason {
        None => LeafStatus::Done,
        Some(ParkReason::Poisoned) => LeafStatus::Parked(ParkedFor::Poisoned),
        Some(ParkReason::TooManyErrors) => LeafStatus::Parked(ParkedFor::TooManyErrors),
        Some(_) => LeafStatus::Parked(ParkedFor::Other),
    };
    let leaf = LeafRecord::new(&row.start, &row.end, status, row.fence_epoch);
    let Some(cursor) = &row.last_key else { return Ok(leaf) };
    let token = match &row.token {
        Some(token) => RuntimeToken::decode(token).map_err(|error| error.to_string())?,
        None => RuntimeToken::START,
    };
    Ok(leaf.with_progress(cursor, token.accumulator, token.unread))
}
