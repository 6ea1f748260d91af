//! Runs, shards and workers as they are typed: ids or their beginnings, names, `@last`.

use gossip::coordination::{GetRunError, RunManagement as _, RunName, RunRecord, ShardFilter};
use gossip::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip::store::Coordinator;

use crate::args::{RunArg, ShardArg};
use crate::failure::{Code, Failure};
use crate::runs;

/// Digits of a whole id.
const ID_DIGITS: usize = 16;

/// Runs per page of a listing.
const PAGE: usize = 256;

/// Candidates that an error about an ambiguous beginning names; more do not help to choose.
const CANDIDATES_MAX: usize = 8;

/// The newest run, whatever its name.
const LAST: &str = "@last";

/// An id, or its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdStart {
    /// The digits as a number.
    value: u64,
    /// How many there are, at least one.
    digits: usize,
}

impl IdStart {
    fn read(text: &str) -> Option<Self> {
        // The parser of the standard library would accept a sign.
        let is_id = text.len() <= ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(text, 16).ok().filter(|_| is_id)?;
        Some(Self { value, digits: text.len() })
    }

    /// Returns the id if all its digits are given.
    const fn whole(self) -> Option<u64> {
        if self.digits == ID_DIGITS { Some(self.value) } else { None }
    }

    /// Returns the lowest id that begins so.
    const fn lowest(self) -> u64 {
        self.value << (4 * (ID_DIGITS - self.digits))
    }

    const fn begins(self, id: u64) -> bool {
        id >> (4 * (ID_DIGITS - self.digits)) == self.value
    }
}

impl std::fmt::Display for IdStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:0digits$x}", self.value, digits = self.digits)
    }
}

/// Parses an id or its beginning.
pub(crate) fn id_start(text: &str) -> Result<IdStart, &'static str> {
    IdStart::read(text).ok_or("expected an id or its first hexadecimal digits")
}

/// A run as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunRef {
    Id(IdStart),
    Named(RunName),
    Last,
}

impl RunRef {
    /// Parses what a user types for a run.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == LAST {
            return Ok(Self::Last);
        }
        // No name looks like an id: those of hexadecimal digits alone are refused.
        if let Some(id) = IdStart::read(text) {
            return Ok(Self::Id(id));
        }
        RunName::try_new(text).map(Self::Named).map_err(|_| {
            "expected the id of a run or its first digits, its name, or @last; see `gossip run list`"
                .to_owned()
        })
    }

    /// Finds the run. A whole id is returned without a look into the store.
    ///
    /// The beginning of an id costs one short listing. A name and `@last` read the record of every
    /// run of the tenant.
    pub(crate) fn find(
        self,
        coordinator: &mut Coordinator,
        tenant: TenantId,
    ) -> Result<RunId, Failure> {
        match self {
            Self::Id(start) => match start.whole() {
                Some(id) => Ok(RunId::from_raw(id)),
                None => by_start(coordinator, tenant, start),
            },
            Self::Named(name) => {
                let named = |run: &RunRecord| run.config().name() == Some(name);
                newest(coordinator, tenant, named)?.ok_or_else(|| {
                    Failure::new(Code::Usage, format!("no run has the name {name}"))
                        .next("list the runs: gossip run list; check --store and --tenant")
                })
            }
            Self::Last => newest(coordinator, tenant, |_| true)?.ok_or_else(|| {
                Failure::new(Code::Usage, "there is no run yet")
                    .next("start one: gossip exec SOURCE -- COMMAND; check --store and --tenant")
            }),
        }
    }
}

impl RunArg {
    /// Finds the run.
    pub(crate) fn find(
        &self,
        coordinator: &mut Coordinator,
        tenant: TenantId,
    ) -> Result<RunId, Failure> {
        self.run.find(coordinator, tenant)
    }
}

impl ShardArg {
    /// Finds the shard.
    pub(crate) fn find(
        &self,
        coordinator: &mut Coordinator,
        tenant: TenantId,
    ) -> Result<ShardKey, Failure> {
        let run = self.run.find(coordinator, tenant)?;
        Ok(ShardKey::new(run, find_shard(coordinator, tenant, run, self.shard)?))
    }
}

/// Finds a shard of a run by its id, the beginning of its id, or its number without leading zeros.
///
/// All but a whole id list the shards of the run.
pub(crate) fn find_shard(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    run: RunId,
    start: IdStart,
) -> Result<ShardId, Failure> {
    // The operation itself reports a shard that does not exist, which saves a listing.
    if let Some(id) = start.whole() {
        return Ok(ShardId::from_raw(id));
    }
    let rows = runs::rows(coordinator, tenant, run, ShardFilter::all())?;
    let mut found: Vec<u64> = rows.iter().map(|row| row.shard.as_raw()).collect();
    // The initial shards are numbered from 1, so their ids begin with the same zeros.
    found.retain(|id| start.begins(*id) || *id == start.value);
    found.sort_unstable();
    match found[..] {
        [id] => Ok(ShardId::from_raw(id)),
        [] => Err(Failure::new(Code::Usage, format!("no such shard: {start}"))
            .next(format!("list the shards of the run: gossip shard list {:016x}", run.as_raw()))),
        _ => Err(ambiguous("shard", start, &found)
            .next(format!("type more digits; gossip shard list {:016x}", run.as_raw()))),
    }
}

/// Chooses the one of `ids` that begins so; `None` if there is none.
pub(crate) fn choose(
    thing: &str,
    start: IdStart,
    ids: impl IntoIterator<Item = u64>,
) -> Result<Option<u64>, Failure> {
    let found: Vec<u64> = ids.into_iter().filter(|id| start.begins(*id)).collect();
    match found[..] {
        [] => Ok(None),
        [id] => Ok(Some(id)),
        _ => Err(ambiguous(thing, start, &found).next("type more digits")),
    }
}

fn by_start(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    start: IdStart,
) -> Result<RunId, Failure> {
    // Ids are listed in ascending order, so those that begin so follow each other.
    let after = start.lowest().checked_sub(1).map(RunId::from_raw);
    let mut found = Vec::new();
    coordinator
        // One more than is shown, so that the message can say that there are others.
        .list_runs_into(tenant, after, CANDIDATES_MAX + 1, &mut found)
        .map_err(|error| Failure::store(&error))?;
    found.retain(|run| start.begins(run.as_raw()));
    match found[..] {
        [run] => Ok(run),
        [] => Err(Failure::new(Code::Usage, format!("no such run: {start}"))
            .next("list the runs: gossip run list; check --store and --tenant")),
        _ => {
            let ids: Vec<u64> = found.iter().map(|run| run.as_raw()).collect();
            Err(ambiguous("run", start, &ids).next("type more digits; gossip run list"))
        }
    }
}

fn ambiguous(thing: &str, start: IdStart, found: &[u64]) -> Failure {
    let shown = found.iter().take(CANDIDATES_MAX).map(|id| format!("{id:016x}"));
    let shown: Vec<_> = shown.collect();
    let more = if found.len() > CANDIDATES_MAX { ", and more" } else { "" };
    let what = format!("{start} is the beginning of more than one {thing}");
    Failure::new(Code::Usage, what).why(format!("{}{more}", shown.join(", ")))
}

/// Returns the newest run that `admits` accepts.
fn newest(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    admits: impl Fn(&RunRecord) -> bool,
) -> Result<Option<RunId>, Failure> {
    let mut best = None;
    for run in all(coordinator, tenant)? {
        let record = match coordinator.get_run(tenant, run) {
            Ok(record) => record,
            // A damaged record has neither name nor age, and a run may be deleted meanwhile.
            Err(GetRunError::RunNotFound) => continue,
            Err(GetRunError::BackendError(error)) if error.is_of_record() => continue,
            Err(error) => return Err(runs::not_found(run, &error)),
        };
        if admits(&record) {
            // The id decides between equal times, so that the answer is always the same.
            best = best.max(Some((record.created_at(), run)));
        }
    }
    Ok(best.map(|(_, run)| run))
}

/// Returns every run of the tenant, in the order of ids.
fn all(coordinator: &mut Coordinator, tenant: TenantId) -> Result<Vec<RunId>, Failure> {
    let mut found = Vec::new();
    loop {
        let before = found.len();
        let after = found.last().copied();
        coordinator
            .list_runs_into(tenant, after, PAGE, &mut found)
            .map_err(|error| Failure::store(&error))?;
        if found.len() - before < PAGE {
            return Ok(found);
        }
    }
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
