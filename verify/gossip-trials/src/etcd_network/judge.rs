//! The judgement of a world: linearizability, effects, and the leases that were lost.

use std::collections::BTreeMap;

use gossip::identity::FenceEpoch;

use super::doctored::Doctoring;
use super::linear::{self, Answer, Effect, Nanos, Operation, Terms, Write};
use super::plan::Fault;
use super::sink::{self, Effects};
use super::world::Evidence;
use super::{LEASE, SKEW};
use crate::Outcome;
use crate::etcd_network::history::{Answered, ByShard, Histories};

const NANOS_PER_MILLI: Nanos = 1_000_000;

const TERMS: Terms =
    Terms { initial_fence: FenceEpoch::INITIAL.as_raw(), lease: LEASE, skew: SKEW };

/// The time after which a lease may end if its holder is cut off or stopped: it is renewed three
/// times within its duration, so the last renewal may be a third of it old.
pub(super) const INEVITABLE: Nanos = LEASE * 2 / 3 * NANOS_PER_MILLI;

/// The least disturbance that explains a lost lease.
const DISTURBED_MIN: Nanos = 500 * NANOS_PER_MILLI;

/// How long a fault disturbs after its end: a request that hangs in it ends with its timeout, and a
/// member that comes back may cause an election.
const RECOVERY: Nanos = 8_000 * NANOS_PER_MILLI;

/// A fault as it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Injected {
    pub(super) fault: Fault,
    /// `None` if it disturbed the leader.
    pub(super) worker: Option<usize>,
    pub(super) start: Nanos,
    pub(super) end: Nanos,
}

impl Injected {
    fn overlap(&self, start: Nanos, end: Nanos) -> Nanos {
        self.end.min(end).saturating_sub(self.start.max(start))
    }

    /// Whether it disturbs a worker.
    fn concerns(&self, worker: usize) -> bool {
        self.worker.is_none_or(|it| it == worker)
    }
}

/// A lease that another grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loss {
    worker: usize,
    shard: u64,
    fence: u64,
    /// When its last acknowledged grant or renewal was requested.
    renewed: Nanos,
    /// When the next grant was acknowledged.
    taken: Nanos,
}

/// The figures of one kind of fault.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultFigures {
    pub(super) lasted: Vec<Nanos>,
    /// Time until the store answers again: after the start of a fault of the leader, after the
    /// end of a fault of a worker.
    pub(super) resumed: Vec<Nanos>,
    pub(super) lost: u64,
    /// Of these, with a holder that was cut off or stopped for too long.
    pub(super) inevitable: u64,
    /// Of these, with a holder that reached a majority all the time.
    pub(super) by_leader: u64,
}

/// The figures of one or more worlds.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) faults: BTreeMap<Fault, FaultFigures>,
    pub(super) shards: u64,
    pub(super) operations: u64,
    pub(super) replies_lost: u64,
    pub(super) grants: u64,
    pub(super) grants_lost: u64,
    pub(super) effects: Effects,
    pub(super) doctored: u64,
    pub(super) outages: u64,
}

impl Figures {
    pub(super) fn add(&mut self, other: Self) {
        for (fault, figures) in other.faults {
            let sum = self.faults.entry(fault).or_default();
            sum.lasted.extend(figures.lasted);
            sum.resumed.extend(figures.resumed);
            sum.lost += figures.lost;
            sum.inevitable += figures.inevitable;
            sum.by_leader += figures.by_leader;
        }
        self.shards += other.shards;
        self.operations += other.operations;
        self.replies_lost += other.replies_lost;
        self.grants += other.grants;
        self.grants_lost += other.grants_lost;
        self.effects.accepted += other.effects.accepted;
        self.effects.stale += other.effects.stale;
        self.effects.repeated += other.effects.repeated;
        self.doctored += other.doctored;
        self.outages += other.outages;
    }

    /// Returns how many leases were lost that were not inevitable.
    pub(super) fn avoidable(&self) -> u64 {
        self.faults.values().map(|it| it.lost - it.inevitable).sum()
    }
}

/// Judges the evidence of a world.
///
/// # Errors
///
/// The first rule that is broken, with the place in the histories.
pub(super) fn judge(evidence: &Evidence, keys: u64, workers: usize) -> Outcome<Figures> {
    let ByShard { mut shards, others } = evidence.histories.by_shard()?;
    if !others.is_empty() {
        return Err(format!("operations that the sequential shard lacks: {others:?}").into());
    }
    for (shard, operation) in &evidence.finals {
        shards.entry(*shard).or_default().push(operation.clone());
        if !matches!(operation.effect, Effect::Final { is_done: true, .. }) {
            return Err(format!("shard {shard} is not complete: {operation:?}").into());
        }
    }
    check_shards(&shards)?;
    let [operations, replies_lost] = evidence.histories.counts();
    let holders = holders(&shards);
    let mut figures = Figures {
        shards: shards.len() as u64,
        operations,
        replies_lost,
        grants: holders.len() as u64,
        grants_lost: grants_lost(&shards),
        effects: sink::check(&evidence.effects, keys, &holders)?,
        doctored: check_doctored(&shards, TERMS)?,
        outages: (0..workers).map(|it| evidence.histories.notes(it, "outage") as u64).sum(),
        ..Figures::default()
    };
    let answered = evidence.histories.answered();
    for injected in &evidence.injected {
        let of_fault = figures.faults.entry(injected.fault).or_default();
        of_fault.lasted.push(injected.end - injected.start);
        of_fault.resumed.extend(resumed(injected, &evidence.injected, &answered));
    }
    for loss in losses(&shards) {
        let (fault, cause) = explain(&loss, &evidence.injected)?;
        let of_fault = figures.faults.entry(fault).or_default();
        of_fault.lost += 1;
        of_fault.inevitable += u64::from(cause == Cause::Inevitable);
        of_fault.by_leader += u64::from(cause == Cause::LeaderOnly);
    }
    Ok(figures)
}

/// Checks the histories of a world that did not end, without its stored state. Returns the number
/// of shards.
///
/// # Errors
///
/// The first shard whose history is not linearizable.
pub(super) fn check_unfinished(histories: &Histories) -> Outcome<usize> {
    let ByShard { shards, .. } = histories.by_shard()?;
    check_shards(&shards)?;
    Ok(shards.len())
}

fn check_shards(shards: &Shards) -> Outcome<()> {
    for (shard, operations) in shards {
        linear::check(operations, TERMS).map_err(|refusal| format!("shard {shard}: {refusal}"))?;
    }
    Ok(())
}

type Shards = BTreeMap<u64, Vec<Operation>>;

/// Returns the worker of each shard and fence.
fn holders(shards: &Shards) -> BTreeMap<(u64, u64), usize> {
    let mut holders = BTreeMap::new();
    for (shard, operations) in shards {
        for operation in operations {
            if let Effect::Grant { fence, .. } = operation.effect {
                holders.insert((*shard, fence), operation.worker);
            }
        }
    }
    holders
}

/// Returns how many fences no worker was granted: replies that were lost.
fn grants_lost(shards: &Shards) -> u64 {
    let lost = |operations: &Vec<Operation>| {
        let (mut granted, mut last) = (FenceEpoch::INITIAL.as_raw(), 0);
        for operation in operations {
            match operation.effect {
                Effect::Grant { .. } => granted += 1,
                Effect::Final { fence, .. } => last = fence,
                Effect::LostGrant
                | Effect::Renew { .. }
                | Effect::Write { .. }
                | Effect::Stale { .. } => {}
            }
        }
        last - granted
    };
    shards.values().map(lost).sum()
}

/// Doctors real histories in every way, and returns in how many ways at least one was doctored.
///
/// # Errors
///
/// If a doctored history is accepted.
fn check_doctored(shards: &Shards, terms: Terms) -> Outcome<u64> {
    let mut ways = 0;
    for kind in Doctoring::ALL {
        for operations in shards.values() {
            // A lost grant may explain a doctored fence, so only histories that need none are used.
            let mut certain = operations.clone();
            certain.retain(|it| it.effect != Effect::LostGrant);
            if linear::check(&certain, terms).is_err() {
                continue;
            }
            let Some(wrong) = kind.apply(&certain) else { continue };
            if linear::check(&wrong, terms).is_ok() {
                return Err(format!("a doctored history was accepted: {kind:?}").into());
            }
            ways += 1;
            break;
        }
    }
    Ok(ways)
}

/// Returns the leases that ended by another grant, and neither by their holder nor by completion.
fn losses(shards: &Shards) -> Vec<Loss> {
    let mut losses = Vec::new();
    for (shard, operations) in shards {
        let is_given_back = |of: u64| {
            operations.iter().any(|it| {
                matches!(it.effect, Effect::Write { fence, write: Write::Release, answer, .. }
                    if fence == of && answer != Answer::Lost)
            })
        };
        for operation in operations {
            let Effect::Grant { fence, .. } = operation.effect else { continue };
            let before = fence - 1;
            let renewals = operations.iter().filter(|it| match it.effect {
                Effect::Grant { fence, .. } | Effect::Renew { fence, .. } => fence == before,
                Effect::LostGrant
                | Effect::Write { .. }
                | Effect::Stale { .. }
                | Effect::Final { .. } => false,
            });
            let Some(last) = renewals.max_by_key(|it| it.call) else { continue };
            if !is_given_back(before) {
                let taken = operation.end.unwrap_or(operation.call);
                let (worker, renewed) = (last.worker, last.call);
                losses.push(Loss { worker, shard: *shard, fence: before, renewed, taken });
            }
        }
    }
    losses
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Its holder was cut off or stopped for too long.
    Inevitable,
    /// Its holder was disturbed, but not for that long.
    Disturbed,
    /// Only the leader was disturbed: the holder reached a majority all the time.
    LeaderOnly,
}

/// Returns the fault that disturbed the holder most while its lease lasted, and the cause. After
/// its lease a shard may wait for a new holder as long as others are free.
///
/// # Errors
///
/// If nothing disturbed it.
fn explain(loss: &Loss, injected: &[Injected]) -> Outcome<(Fault, Cause)> {
    let Loss { worker, renewed, taken, .. } = *loss;
    let end = taken.min(renewed + (LEASE + SKEW) * NANOS_PER_MILLI);
    let overlap =
        |it: &&Injected| Injected { end: it.end + RECOVERY, ..**it }.overlap(renewed, end);
    let concerning = injected.iter().filter(|it| it.concerns(worker));
    let disturbing = concerning.filter(|it| overlap(it) >= DISTURBED_MIN);
    let longest = disturbing
        .clone()
        .max_by_key(overlap)
        .ok_or_else(|| format!("a lease was lost although nothing disturbed it: {loss:?}"))?;
    let mut own: Vec<&Injected> = disturbing.filter(|it| it.worker.is_some()).collect();
    own.sort_by_key(|it| it.start);
    let cut = own.iter().filter(|it| it.fault.silences());
    let (mut silent, mut until) = (0, renewed);
    for it in cut {
        silent += it.overlap(until, end);
        until = until.max(it.end);
    }
    let cause = match (own.is_empty(), silent >= INEVITABLE) {
        (true, _) => Cause::LeaderOnly,
        (false, true) => Cause::Inevitable,
        (false, false) => Cause::Disturbed,
    };
    // A worker that was silent for too long loses its lease whatever else happens.
    let silencing = own.iter().filter(|it| it.fault.silences()).max_by_key(|it| overlap(it));
    let fault = match (cause, silencing) {
        (Cause::Inevitable, Some(silencing)) => silencing.fault,
        (Cause::Inevitable | Cause::Disturbed | Cause::LeaderOnly, _) => longest.fault,
    };
    Ok((fault, cause))
}

/// Returns the time until the store answered again, unless another fault disturbed it too.
fn resumed(fault: &Injected, injected: &[Injected], answered: &[Answered]) -> Option<Nanos> {
    // A request from before the fault shows nothing.
    let since = if fault.worker.is_some() { fault.end } else { fault.start };
    let is_its =
        |it: &&Answered| fault.concerns(it.worker) && it.call >= fault.start && it.end >= since;
    let first = answered.iter().filter(is_its).map(|it| it.end).min()?;
    let is_other = |it: &&Injected| {
        *it != fault && it.worker == fault.worker && it.overlap(fault.start, first) > 0
    };
    let disturbed = fault.worker.is_some() && injected.iter().any(|it| is_other(&it));
    (!disturbed).then_some(first - since)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn injected(fault: Fault, worker: Option<usize>, start: u64, end: u64) -> Injected {
        Injected { fault, worker, start: start * SECOND, end: end * SECOND }
    }

    /// The holder renewed at 100 s, and another worker was granted its shard at 120 s.
    fn shards() -> Shards {
        let at = |worker, seconds: u64, effect| Operation {
            worker,
            call: seconds * SECOND,
            end: Some(seconds * SECOND),
            effect,
        };
        let grant = |fence| Effect::Grant { fence, cursor: 0, deadline: 0, now: 1 };
        let renew = Effect::Renew { fence: 1, deadline: 0, now: 1 };
        let last = Effect::Final { fence: 4, cursor: 0, is_done: true };
        let operations =
            vec![at(4, 90, grant(1)), at(4, 100, renew), at(5, 120, grant(2)), at(9, 200, last)];
        BTreeMap::from([(7, operations)])
    }

    #[test]
    fn lost_lease_is_found_with_its_last_renewal() {
        let loss =
            Loss { worker: 4, shard: 7, fence: 1, renewed: 100 * SECOND, taken: 120 * SECOND };
        assert_eq!(losses(&shards()), [loss]);
        assert_eq!(grants_lost(&shards()), 1);
        assert_eq!(holders(&shards()), BTreeMap::from([((7, 1), 4), ((7, 2), 5)]));
    }

    #[test]
    fn released_lease_is_not_lost() {
        let mut shards = shards();
        let answer = Answer::Executed;
        let effect = Effect::Write { fence: 1, op: 1, write: Write::Release, answer };
        let release = Operation { worker: 4, call: 1, end: Some(2), effect };
        shards.get_mut(&7).unwrap().push(release);
        assert!(losses(&shards).is_empty());
    }

    #[test]
    fn loss_is_inevitable_if_its_holder_was_disturbed_for_long() {
        let loss = losses(&shards())[0];
        let explained = |faults: &[Injected]| explain(&loss, faults).ok();
        let stopped = |to| injected(Fault::WorkerStopped, Some(4), 101, to);
        assert_eq!(explained(&[stopped(118)]), Some((Fault::WorkerStopped, Cause::Inevitable)));
        assert_eq!(explained(&[stopped(108)]), Some((Fault::WorkerStopped, Cause::Disturbed)));
        // Two that overlap are as long as their union.
        let cut = injected(Fault::WorkerCut, Some(4), 105, 110);
        assert_eq!(explained(&[stopped(108), cut]).unwrap().1, Cause::Disturbed);
        let cut = injected(Fault::WorkerCut, Some(4), 105, 112);
        assert_eq!(explained(&[stopped(108), cut]).unwrap().1, Cause::Inevitable);
        let longer = injected(Fault::LeaderKilled, None, 90, 120);
        let explained_by = explained(&[stopped(112), longer]);
        assert_eq!(explained_by, Some((Fault::WorkerStopped, Cause::Inevitable)));
        let slow = injected(Fault::WorkerSlow, Some(4), 101, 119);
        assert_eq!(explained(&[slow]), Some((Fault::WorkerSlow, Cause::Disturbed)));
        let killed = injected(Fault::LeaderKilled, None, 101, 119);
        assert_eq!(explained(&[killed]), Some((Fault::LeaderKilled, Cause::LeaderOnly)));
    }

    #[test]
    fn loss_without_a_fault_is_an_error() {
        let loss = losses(&shards())[0];
        assert!(explain(&loss, &[]).is_err());
        let of_another = injected(Fault::WorkerStopped, Some(5), 101, 119);
        let before = injected(Fault::WorkerStopped, Some(4), 80, 92);
        // The shard was free by then, and no worker claimed it.
        let after = injected(Fault::WorkerStopped, Some(4), 118, 119);
        assert!(explain(&loss, &[of_another, before, after]).is_err());
    }

    #[test]
    fn fault_disturbs_for_a_request_timeout_after_its_end() {
        let loss = losses(&shards())[0];
        let before = injected(Fault::LeaderKilled, None, 80, 97);
        assert_eq!(explain(&loss, &[before]).ok(), Some((Fault::LeaderKilled, Cause::LeaderOnly)));
    }

    #[test]
    fn time_to_resume_counts_what_was_requested_after_the_fault_began() {
        let cut = injected(Fault::WorkerCut, Some(4), 10, 20);
        let ack = |worker, call: u64, end: u64| Answered {
            worker,
            call: call * SECOND,
            end: end * SECOND,
        };
        let answered = [ack(4, 9, 21), ack(5, 12, 21), ack(4, 19, 22), ack(4, 23, 24)];
        assert_eq!(resumed(&cut, &[cut], &answered), Some(2 * SECOND));
        let other = injected(Fault::WorkerStopped, Some(4), 19, 21);
        assert_eq!(resumed(&cut, &[cut, other], &answered), None);
        let leader = injected(Fault::LeaderCut, None, 10, 20);
        assert_eq!(resumed(&leader, &[leader], &answered), Some(11 * SECOND));
    }
}
