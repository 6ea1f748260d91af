//! From facts to an answer: ladders of causes, the most certain first.

use gossip::coordination::{ParkReason, RunStatus, ShardStatus, ShardSummary, WorkerEntry};
use gossip::identity::{LogicalTime, ShardId, WorkerId};
use gossip::{Totals, coordination::store::DEFAULT_MAX_CLOCK_SKEW};

use super::facts::{Facts, SourceState};
use crate::doctor::{SPACE_MIN, Space};
use crate::failed::ShownItem;
use crate::failure::{Code, Failure};
use crate::output::count;
use crate::{duration, progress, runs, shards};

/// What `why` prints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The name of the incident, for scripts.
    pub(super) incident: &'static str,
    /// One sentence.
    pub(super) cause: String,
    pub(super) evidence: Vec<String>,
    /// The next command, or that there is nothing to do.
    pub(super) next: String,
}

/// Failed items that an answer names.
const NAMES_MAX: usize = 3;

/// Nothing is left to do.
const NOTHING: &str = "nothing";

impl Answer {
    pub(super) fn new(incident: &'static str, cause: impl Into<String>) -> Self {
        Self { incident, cause: cause.into(), evidence: Vec::new(), next: NOTHING.to_owned() }
    }

    pub(super) fn evidence(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    pub(super) fn next(self, next: impl Into<String>) -> Self {
        Self { next: next.into(), ..self }
    }
}

/// Explains why a run is not finished, or how it ended.
pub(super) fn of_run(facts: &Facts) -> Answer {
    let totals = Totals::of(&facts.rows);
    let counts = counts(facts);
    let answer = match facts.record.status() {
        RunStatus::Initializing => return initializing(facts),
        RunStatus::Done => finished(facts, &totals),
        RunStatus::Failed => over(facts, "failed"),
        RunStatus::Cancelled => over(facts, "cancelled"),
        RunStatus::Active => active(facts),
    };
    answer.evidence(counts)
}

fn active(facts: &Facts) -> Answer {
    // What stops the whole run comes first: with it, the state of single shards explains nothing.
    obstacle(facts).or_else(|| leases(facts, &facts.rows)).unwrap_or_else(|| unclaimed(facts))
}

/// Finds what stops the whole run.
fn obstacle(facts: &Facts) -> Option<Answer> {
    let id = facts.id();
    if facts.record.is_paused() {
        return Some(
            Answer::new("paused", "the run is paused: workers claim no shard of it")
                .next(format!("gossip run resume {id}")),
        );
    }
    if let Some(answer) = facts.space.and_then(full_disk) {
        return Some(answer);
    }
    if let Some(answer) = clock_skew(facts) {
        return Some(answer);
    }
    let damaged: Vec<&ShardSummary> =
        facts.rows.iter().filter(|row| row.damage.is_some()).collect();
    let first = damaged.first()?.shard.as_raw();
    Some(
        Answer::new(
            "damaged-record",
            format!("{} cannot be read", count(damaged.len() as u64, "shard record")),
        )
        .evidence(format!("the first is {first:016x}; workers skip it"))
        .next(format!("gossip shard repair {id} {first:016x}")),
    )
}

/// Explains a disk that is full; `None` if it is not.
pub(super) fn full_disk(space: Space) -> Option<Answer> {
    (space.free < SPACE_MIN).then(|| {
        Answer::new("store-full", "the disk of the store is full, so no progress can be saved")
            .evidence(space.to_string())
            .next("free some space; workers that wait resume automatically")
    })
}

/// Finds a clock that is wrong: it delays takeovers, and other workers wait for its deadlines.
fn clock_skew(facts: &Facts) -> Option<Answer> {
    let skew = u64::try_from(DEFAULT_MAX_CLOCK_SKEW.as_millis()).unwrap_or(u64::MAX);
    let ahead = |time: LogicalTime| time.as_raw().saturating_sub(facts.now.as_raw());
    // Of owners only: the clock of a worker without a shard delays no other work.
    let of_run = facts
        .entries
        .iter()
        .filter(|entry| facts.rows.iter().any(|row| row.owner == Some(entry.worker)));
    let by_heartbeat = of_run
        .map(|entry| (entry.worker, ahead(entry.last_seen())))
        .find(|(_, ahead)| *ahead > skew);
    let lease = facts.record.config().lease_duration();
    let by_lease = facts.rows.iter().find_map(|row| {
        // A deadline is at most one lease ahead of the clock that set it.
        let beyond = ahead(row.lease_deadline?).checked_sub(lease)?;
        (beyond > skew).then_some((row.owner?, beyond))
    });
    let (worker, offset) = by_heartbeat.or(by_lease)?;
    Some(
        Answer::new(
            "clock-skew",
            format!(
                "the clock of {} is ahead by {}",
                facts.name_of(worker),
                duration::rough(offset)
            ),
        )
        .evidence(format!("allowed: {}", duration::rough(skew)))
        .next("set the clocks of all hosts (chronyc tracking), then gossip doctor"),
    )
}

/// Explains live leases among `rows`; `None` if there is none.
fn leases(facts: &Facts, rows: &[ShardSummary]) -> Option<Answer> {
    // A lease that has ended has an owner, too, but stops nothing.
    let leased: Vec<&ShardSummary> = rows.iter().filter(|row| row.leased).collect();
    let first = leased.first()?;
    let owner = first.owner?;
    let moving =
        |row: &&&ShardSummary| facts.handoffs.iter().any(|terms| terms.key.shard() == row.shard);
    if let Some(row) = leased.iter().find(moving) {
        return Some(handoff(facts, row));
    }
    let is_dead = |row: &&&ShardSummary| row.owner.is_some_and(|owner| !is_alive(facts, owner));
    match leased.iter().find(is_dead) {
        // A living worker takes over the shard of a dead one; that is no standstill.
        Some(row) if leased.iter().all(|row| is_dead(&row)) => Some(dead_worker(facts, row)),
        _ => Some(held(facts, owner, &leased)),
    }
}

fn handoff(facts: &Facts, row: &ShardSummary) -> Answer {
    let terms = facts.handoffs.iter().find(|terms| terms.key.shard() == row.shard);
    let (to, until) =
        terms.map_or((None, None), |terms| (Some(terms.to), Some(terms.offer_deadline)));
    let to = to.map_or_else(|| "another worker".to_owned(), |to| facts.name_of(to));
    let until = until
        .map_or_else(String::new, |until| format!(", offered until {}", time(until, facts.now)));
    let shard = row.shard.as_raw();
    Answer::new("handoff-pending", format!("shard {shard:016x} is being handed over to {to}"))
        .evidence(format!("the handoff is in progress{until}"))
        .next("gossip handoff list")
}

fn held(facts: &Facts, owner: WorkerId, leased: &[&ShardSummary]) -> Answer {
    let mut owners: Vec<WorkerId> = leased.iter().filter_map(|row| row.owner).collect();
    owners.sort_unstable();
    owners.dedup();
    let who = match owners.len() {
        1 => facts.name_of(owner),
        many => format!("{many} workers"),
    };
    let shards = count(leased.len() as u64, "shard");
    let seen = owners.iter().filter_map(|owner| facts.entry(*owner)).map(WorkerEntry::last_seen);
    let answer = Answer::new("in-progress", format!("it is being worked on by {who}"))
        .evidence(format!("{shards} leased"))
        .next(format!("gossip run show {}", facts.id()));
    match seen.max() {
        Some(seen) => answer.evidence(format!("last seen {}", time(seen, facts.now))),
        None => answer,
    }
}

fn dead_worker(facts: &Facts, row: &ShardSummary) -> Answer {
    let (id, shard) = (facts.id(), row.shard.as_raw());
    let who = row.owner.map_or_else(|| "a worker".to_owned(), |owner| facts.name_of(owner));
    let until = row.lease_deadline.map_or_else(
        || "until its lease ends".to_owned(),
        |at| format!("until its lease ends {}", time(at, facts.now)),
    );
    let answer =
        Answer::new("dead-worker", format!("{who} is gone; its shards stay leased {until}"));
    let entry = row.owner.and_then(|owner| facts.entry(owner));
    let answer = match entry {
        Some(entry) => answer.evidence(format!("last seen {}", time(entry.last_seen(), facts.now))),
        None => answer.evidence("it is not in the registry"),
    };
    answer.next(format!(
        "wait, or free it now: gossip shard release {id} {shard:016x} --force; then {}",
        facts.join()
    ))
}

fn is_alive(facts: &Facts, owner: WorkerId) -> bool {
    facts.entry(owner).is_some_and(|entry| facts.is_live(entry))
}

/// Explains an active run of which no shard is leased.
fn unclaimed(facts: &Facts) -> Answer {
    let waiting: Vec<&ShardSummary> = facts
        .rows
        .iter()
        .filter(|row| row.damage.is_none() && row.status == ShardStatus::Active)
        .collect();
    let live: Vec<&WorkerEntry> = facts.live_workers().collect();
    let is_retried =
        |row: &ShardSummary| row.park_reason == Some(ParkReason::TooManyErrors) || row.attempts > 0;
    // A live worker that claims nothing has a reason, and a shard that was tried is the likely
    // one.
    if let Some(worker) = live.first()
        && let Some(row) = facts.rows.iter().find(|row| is_retried(row))
    {
        return Answer::new("waiting-for-retry", "a worker waits before it tries a shard again")
            .evidence(format!("{} waits", facts.name_of(worker.worker)))
            .evidence(attempts(facts, row))
            .next(format!("wait, or try now: gossip retry {} --all", facts.id()));
    }
    // Behind the retries, because a shard that waits for one may be parked.
    if waiting.is_empty() {
        return parked(facts);
    }
    if let Some(worker) = live.first() {
        return Answer::new("about-to-claim", "a worker is registered and holds no shard yet")
            .evidence(format!("{} waits", facts.name_of(worker.worker)))
            .next("run the same command again in a moment");
    }
    match &facts.source {
        // A worker would refuse to join, so a command to do so would not help.
        SourceState::Changed => source_changed(facts),
        SourceState::Missing(why) => source_missing(facts, why),
        SourceState::Here | SourceState::Unknown => {
            let again =
                facts.command().map_or_else(String::new, |command| format!(", or {command}"));
            Answer::new("no-worker", "no worker has joined the run")
                .evidence(format!("{} waiting", count(waiting.len() as u64, "shard")))
                .next(format!("{}{again}", facts.join()))
        }
    }
}

fn source_changed(facts: &Facts) -> Answer {
    Answer::new("source-changed", "the source has changed since the run was created")
        .evidence("its keys, positions or columns, may now be those of other items")
        .next(match facts.command() {
            Some(command) => {
                format!("repeat its command with --restart, which cancels the run: {command}")
            }
            None => format!("gossip run cancel {}, then start it again", facts.id()),
        })
}

fn source_missing(facts: &Facts, why: &str) -> Answer {
    let source = facts.job.as_ref().map_or_else(String::new, |job| {
        use std::os::unix::ffi::OsStrExt as _;
        progress::escaped(job.source.as_bytes())
    });
    Answer::new("source-missing", "the source of the run is not available on this machine")
        .evidence(format!("{source}: {why}"))
        .next(format!("on a machine that has it: {}", facts.join()))
}

/// Explains an active run that has parked shards only.
fn parked(facts: &Facts) -> Answer {
    let parked: Vec<&ShardSummary> =
        facts.rows.iter().filter(|row| row.status == ShardStatus::Parked).collect();
    let with = |reason| parked.iter().filter(|row| row.park_reason == Some(reason)).count() as u64;
    // Workers complete a run in a step of its own, which the last of them may not have reached.
    let Some(first) = parked.first() else {
        return Answer::new(
            "about-to-complete",
            "every shard is done; the run was not completed yet",
        )
        .next(facts.join());
    };
    let id = facts.id();
    let (items, exhausted) = (with(ParkReason::Poisoned), with(ParkReason::TooManyErrors));
    let source = with(ParkReason::NotFound) + with(ParkReason::PermissionDenied);
    let retry = match facts.failures.as_slice() {
        // One item can be named, which is the command that a user would type.
        [item] if item.item.shard().is_some_and(|shard| item.is_failed_item_of(shard)) => {
            facts.retry(item)
        }
        _ => format!("gossip retry {id} --all"),
    };
    let retry = format!("fix the cause, then {retry} and repeat the command");
    let answer = if items > 0 {
        let alone = |item: &&ShownItem| {
            item.item.shard().is_some_and(|shard| item.is_failed_item_of(shard))
        };
        let failed = facts.failures.iter().filter(alone);
        let names: Vec<&str> = failed.map(|item| &*item.name).take(NAMES_MAX).collect();
        let more = if items > names.len() as u64 { ", …" } else { "" };
        Answer::new("everything-parked", format!("only {} left", count(items, "failed item")))
            .evidence(format!("failed: {}{more} (list: gossip failed {id})", names.join(", ")))
            .evidence(attempts(facts, first))
    } else if exhausted > 0 {
        Answer::new(
            "attempts-exhausted",
            format!("{} parked after too many attempts", count(exhausted, "shard")),
        )
        .evidence(attempts(facts, first))
    } else if source > 0 {
        Answer::new("source-missing", "the source could not be read, and its shards are parked")
            .evidence(attempts(facts, first))
    } else {
        Answer::new("everything-parked", "only parked shards are left")
            .evidence(attempts(facts, first))
    };
    answer.next(retry)
}

/// Describes the attempts and the last error of a shard.
fn attempts(facts: &Facts, row: &ShardSummary) -> String {
    let shard = row.shard.as_raw();
    let reason = match row.park_reason {
        Some(ParkReason::Poisoned) => "its item failed",
        Some(reason) => shards::reason_word(reason),
        None => "not parked",
    };
    let max = facts.record.config().max_shard_retries();
    let of = max.map_or_else(String::new, |max| format!(" of {}", max.saturating_add(1)));
    let text = row
        .park_context
        .as_deref()
        .map_or_else(String::new, |text| format!(": {}", progress::escaped(text.as_bytes())));
    let attempt = match row.attempts {
        0 => String::new(),
        attempt => format!(", attempt {attempt}{of}"),
    };
    format!("shard {shard:016x}: {reason}{attempt}{text}")
}

fn initializing(facts: &Facts) -> Answer {
    let id = facts.id();
    if let Some(usage) = facts.usage.as_ref().filter(|usage| usage.is_full()) {
        return Answer::new("quota-reached", "the shard quota of the tenant is used up")
            .evidence(format!("{} of {} shards", usage.shards, usage.allotment.max_shards))
            .next("delete finished runs (gossip run rm RUN), or gossip tenant limit --shards N");
    }
    Answer::new("not-registered", "the registration of its shards was interrupted")
        .evidence(format!("run {id} is initializing"))
        .next("repeat the command that created it")
}

fn finished(facts: &Facts, totals: &Totals) -> Answer {
    if totals.unread > 0 {
        return Answer::new(
            "unread-items",
            format!("{} could not be read", count(totals.unread, "item")),
        )
        .next("fix the source, then repeat the command with --restart");
    }
    let ended = facts.record.completed_at().map_or_else(String::new, |at| time(at, facts.now));
    Answer::new("finished", format!("the run is finished: {} done", count(totals.keys, "key")))
        .evidence(format!("completed {ended}"))
}

fn over(facts: &Facts, how: &'static str) -> Answer {
    let ended = facts.record.completed_at().map_or_else(String::new, |at| time(at, facts.now));
    Answer::new(how, format!("the run was {how} by an administrator"))
        .evidence(format!("{how} {ended}"))
        .next("start a new run: repeat its command")
}

/// Counts the shards of a run by state.
fn counts(facts: &Facts) -> String {
    let intact = || facts.rows.iter().filter(|row| row.damage.is_none());
    let with = |status| intact().filter(|row| row.status == status).count();
    let is_over = facts.record.status().is_terminal();
    // The end of a run does not clear the leases of its shards.
    let leased = if is_over { 0 } else { intact().filter(|row| row.leased).count() };
    format!(
        "shards: {} done, {leased} leased, {} waiting, {} parked",
        with(ShardStatus::Done),
        with(ShardStatus::Active) - leased.min(with(ShardStatus::Active)),
        with(ShardStatus::Parked)
    )
}

/// Explains the state of a shard.
pub(super) fn of_shard(facts: &Facts, shard: ShardId) -> Result<Answer, Failure> {
    let row = facts.row(shard).ok_or_else(|| {
        Failure::new(Code::Usage, format!("no such shard: {:016x}", shard.as_raw()))
            .next(format!("gossip shard list {}", facts.id()))
    })?;
    let (id, number) = (facts.id(), shard.as_raw());
    if row.damage.is_some() {
        return Ok(Answer::new("damaged-record", "the record of the shard cannot be read")
            .evidence("workers skip it")
            .next(format!("gossip shard repair {id} {number:016x}")));
    }
    let fence = format!("fence {}, {} grants", row.fence_epoch.as_raw(), row.acquire_count);
    Ok(match row.status {
        ShardStatus::Done => Answer::new("finished", "the shard is done").evidence(fence),
        ShardStatus::Split => {
            let children = facts.rows.iter().filter(|other| other.parent == Some(shard)).count();
            Answer::new("split", "the shard was split; its children cover its range")
                .evidence(count(children as u64, "child shard"))
                .next(format!("gossip shard list {id}"))
        }
        ShardStatus::Parked => {
            let incident = match row.park_reason {
                Some(ParkReason::TooManyErrors) => "attempts-exhausted",
                Some(ParkReason::NotFound | ParkReason::PermissionDenied) => "source-missing",
                _ => "parked",
            };
            let reason = match row.park_reason {
                Some(ParkReason::Poisoned) => "its item failed",
                Some(reason) => shards::reason_word(reason),
                None => "unknown",
            };
            let answer = Answer::new(incident, format!("the shard is parked: {reason}"))
                .evidence(attempts(facts, row));
            match facts.failures.iter().find(|item| item.is_failed_item_of(shard)) {
                Some(item) => answer
                    .evidence(format!("the item: {}", item.name))
                    .next(format!("fix the cause, then {}", facts.retry(item))),
                None => answer
                    .next(format!("fix the cause, then gossip shard unpark {id} {number:016x}")),
            }
        }
        ShardStatus::Active => match facts.record.status() {
            RunStatus::Active => obstacle(facts)
                // Another shard is damaged, which does not stop this one.
                .filter(|answer| answer.incident != "damaged-record")
                .or_else(|| leases(facts, std::slice::from_ref(row)))
                .unwrap_or_else(|| unclaimed_shard(facts, row))
                .evidence(fence),
            status => {
                let status = runs::status_word(status);
                Answer::new(status, format!("its run is {status}"))
            }
        },
    })
}

fn unclaimed_shard(facts: &Facts, row: &ShardSummary) -> Answer {
    // Other shards are worked on, so it is only a matter of time.
    if facts.rows.iter().any(|row| row.leased) {
        return Answer::new("waiting", "the shard waits for a free worker")
            .evidence("workers of the run are busy with other shards")
            .next(format!("add a worker: {}", facts.join()));
    }
    if row.attempts > 0 && facts.live_workers().next().is_some() {
        return Answer::new("waiting-for-retry", "the shard waits before it is tried again")
            .evidence(attempts(facts, row))
            .next("wait");
    }
    unclaimed(facts)
}

/// Formats a time as its distance from now.
pub(super) fn time(time: LogicalTime, now: LogicalTime) -> String {
    duration::from_now(time.as_raw(), now.as_raw())
}
