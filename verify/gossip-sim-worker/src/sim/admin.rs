//! The administrator of a world, who is not affected by faults.

use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, WorkerId};
use gossip_coordination::protocol::fence_floor_at;
use gossip_coordination::{RunManagement as _, ShardAction, ShardStatus, ShardSummary, SplitKey};
use gossip_sim::{Stream, mix};

use super::settle::rows;
use super::shared_state::{ADMIN, Coordinator, RUN, SharedState, TENANT};
use super::source::ROOT;

/// Lifetime of a request in ticks.
const REQUEST_TICKS: u64 = 4_000;

/// An administrator of the run.
pub(super) struct Admin<'w> {
    shared: &'w SharedState,
    handle: Coordinator,
    luck: Stream,
    operations: u64,
    is_paused: bool,
    repairs: u64,
    /// Number of requests to owners.
    pub(super) requests: u64,
}

impl<'w> Admin<'w> {
    pub(super) fn new(shared: &'w SharedState) -> Self {
        Self {
            shared,
            handle: shared.admin(),
            luck: Stream::named(shared.setting.nature.seed, "admin", 0),
            operations: 0,
            is_paused: false,
            repairs: 0,
            requests: 0,
        }
    }

    /// Runs one action; returns whether a process must drain.
    pub(super) fn act(&mut self, workers: &[WorkerId]) -> bool {
        if self.is_paused {
            self.resume();
            return false;
        }
        let action = match self.luck.below(10) {
            0 | 1 => ShardAction::Split(None),
            2 => self.split_somewhere(),
            3 => ShardAction::Release,
            4 => ShardAction::HandOff(None),
            5 | 6 => ShardAction::HandOff(self.pick(workers).copied()),
            7 => {
                self.pause();
                return false;
            }
            8 if self.luck.one_in(4) => {
                self.revoke();
                return false;
            }
            8 if self.luck.one_in(2) => {
                self.repair();
                return false;
            }
            8 => ShardAction::Withdraw,
            _ => return true,
        };
        self.ask(&action);
        false
    }

    /// Resumes the run.
    pub(super) fn resume(&mut self) {
        let (now, op_id) = (self.now(), self.op_id());
        self.is_paused = false;
        self.shared.record(|| "the run is resumed".to_owned());
        // Fails if the run has ended meanwhile.
        drop(self.handle.resume_run(now, TENANT, RUN, op_id));
    }

    /// Unparks the shards that `wants` selects; returns their number.
    pub(super) fn unpark(&mut self, wants: impl Fn(&ShardSummary) -> bool) -> usize {
        let rows = rows(self.shared, self.now());
        let parked = rows.iter().filter(|row| row.status == ShardStatus::Parked && wants(row));
        let parked: Vec<ShardKey> = parked.map(|row| ShardKey::new(RUN, row.shard)).collect();
        for key in &parked {
            let (now, op_id) = (self.now(), self.op_id());
            drop(self.handle.unpark_shard(now, TENANT, *key, op_id));
        }
        parked.len()
    }

    /// Repairs the shards that are listed as damaged, as `gossip shard repair` does; returns their
    /// number.
    pub(super) fn repair(&mut self) -> usize {
        let rows = rows(self.shared, self.now());
        let damaged = rows.iter().filter(|row| row.damage.is_some());
        let damaged: Vec<ShardKey> = damaged.map(|row| ShardKey::new(RUN, row.shard)).collect();
        for key in &damaged {
            // Two repairs at one time would issue a fence twice: the command has seconds.
            self.repairs += 1;
            let at_least = fence_floor_at(self.now().as_raw() + self.repairs);
            self.shared.record(|| format!("repairs {:x}", key.shard().as_raw()));
            // Fails if its holder has written the shard meanwhile.
            drop(self.handle.repair_shard(TENANT, *key, at_least, Some(ROOT)));
        }
        damaged.len()
    }

    fn now(&self) -> LogicalTime {
        self.shared.disk.clock(ADMIN)
    }

    fn op_id(&mut self) -> OpId {
        self.operations += 1;
        OpId::from_raw(mix(self.operations))
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let bound = from.len() as u64;
        (bound > 0).then(|| &from[self.luck.below(bound.max(1)) as usize])
    }

    fn split_somewhere(&mut self) -> ShardAction {
        let shared = self.shared;
        let key = self.pick(&shared.source.entries).map(|entry| entry.key.as_slice());
        ShardAction::Split(key.and_then(SplitKey::try_new))
    }

    fn leased(&mut self) -> Option<ShardKey> {
        let rows = rows(self.shared, self.now());
        let leased: Vec<_> = rows.iter().filter(|row| row.leased).collect();
        self.pick(&leased).map(|row| ShardKey::new(RUN, row.shard))
    }

    fn ask(&mut self, action: &ShardAction) {
        let Some(key) = self.leased() else { return };
        let (now, op_id) = (self.now(), self.op_id());
        self.requests += 1;
        self.shared.record(|| format!("asks {} of {:x}", action.label(), key.shard().as_raw()));
        let until = now.saturating_add(REQUEST_TICKS);
        // Fails if another request is pending.
        drop(self.handle.request_action(now, TENANT, key, action, until, op_id));
    }

    fn pause(&mut self) {
        let (now, op_id) = (self.now(), self.op_id());
        self.is_paused = self.handle.pause_run(now, TENANT, RUN, op_id).is_ok();
        self.shared.record(|| "the run is paused".to_owned());
    }

    fn revoke(&mut self) {
        let Some(key) = self.leased() else { return };
        let (now, op_id) = (self.now(), self.op_id());
        self.shared.record(|| format!("revokes {:x}", key.shard().as_raw()));
        drop(self.handle.revoke_lease(now, TENANT, key, None, op_id));
    }
}
