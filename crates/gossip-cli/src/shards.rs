//! `shard`: looking at shards and steering them.

use std::os::unix::ffi::OsStrExt as _;

use gossip::coordination::{
    ParkReason, RequestActionError, RevokeLeaseError, RunManagement as _, ShardAction, ShardFilter,
    ShardStatus, ShardSummary, SplitKey, UnparkError,
};
use gossip::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip::runtime::{Clock as _, RuntimeToken, SystemClock, fresh_op_id};
use gossip::store::Coordinator;

use crate::args::{Global, ShardArg, ShardCommand};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::{runs, store};

/// How long a request waits for the owner, in ticks: an owner hears of it at its next renewal.
const REQUEST_LASTS: u64 = 60_000;

pub(crate) fn run(
    global: &Global,
    command: ShardCommand,
    console: &Console,
) -> Result<Code, Failure> {
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let mut steer = Steer { coordinator: backend.coordinator(), tenant, console };
    match command {
        ShardCommand::List { run, parked } => {
            let filter = if parked { ShardFilter::parked() } else { ShardFilter::all() };
            steer.list(global, RunId::from_raw(run.run), filter)?;
        }
        ShardCommand::Show(arg) => steer.show(global, key(&arg))?,
        ShardCommand::Unpark { run, shard, all: _ } => {
            steer.unpark(RunId::from_raw(run.run), shard.map(ShardId::from_raw))?;
        }
        ShardCommand::Split { shard, at } => {
            let at = at.map(|at| split_key(at.as_bytes())).transpose()?;
            steer.ask(key(&shard), &ShardAction::Split(at))?;
        }
        ShardCommand::Release { shard, force: false } => {
            steer.ask(key(&shard), &ShardAction::Release)?;
        }
        ShardCommand::Release { shard, force: true } => steer.revoke(key(&shard))?,
    }
    Ok(Code::Complete)
}

struct Steer<'c> {
    coordinator: Coordinator,
    tenant: TenantId,
    console: &'c Console,
}

impl Steer<'_> {
    fn list(&mut self, global: &Global, run: RunId, filter: ShardFilter) -> Result<(), Failure> {
        let rows = runs::rows(&mut self.coordinator, self.tenant, run, filter)?;
        let records: Vec<_> = rows.iter().map(describe).collect();
        let columns =
            ["shard", "status", "reason", "owner", "fence", "keys", "cursor", "start", "end"];
        output::list(global.output, &columns, &records)
    }

    fn show(&mut self, global: &Global, key: ShardKey) -> Result<(), Failure> {
        let filter = ShardFilter::all();
        let rows = runs::rows(&mut self.coordinator, self.tenant, key.run(), filter)?;
        let row = rows.iter().find(|row| row.shard == key.shard()).ok_or_else(no_shard)?;
        output::one(global.output, &describe(row))
    }

    fn unpark(&mut self, run: RunId, shard: Option<ShardId>) -> Result<(), Failure> {
        let shards = match shard {
            Some(shard) => vec![shard],
            None => {
                let filter = ShardFilter::parked();
                let rows = runs::rows(&mut self.coordinator, self.tenant, run, filter)?;
                rows.iter().map(|row| row.shard).collect()
            }
        };
        for shard in &shards {
            let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
            let key = ShardKey::new(run, *shard);
            let unparked = self.coordinator.unpark_shard(now, self.tenant, key, op_id);
            unparked.map_err(|error| match error {
                UnparkError::BackendError(error) => Failure::store(&error),
                UnparkError::ShardNotFound => no_shard(),
                error => Failure::new(Code::Usage, "the shard was not brought back").why(error),
            })?;
        }
        if shards.is_empty() {
            self.console.note("nothing is set aside");
            return Ok(());
        }
        self.console.note(&format!(
            "{} brought back; type the command of the run again, or gossip worker {:016x}",
            output::count(shards.len() as u64, "shard"),
            run.as_raw()
        ));
        Ok(())
    }

    fn ask(&mut self, key: ShardKey, action: &ShardAction) -> Result<(), Failure> {
        ask(&mut self.coordinator, self.tenant, key, action)?;
        self.console.note("asked; the owner hears of it when it renews");
        Ok(())
    }

    fn revoke(&mut self, key: ShardKey) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let revoked = self.coordinator.revoke_lease(now, self.tenant, key, op_id);
        revoked.map_err(|error| match error {
            RevokeLeaseError::BackendError(error) => Failure::store(&error),
            RevokeLeaseError::ShardNotFound => no_shard(),
            error => Failure::new(Code::Usage, "the lease was not taken away").why(error),
        })?;
        self.console.note("taken away; its owner is refused from now on");
        Ok(())
    }
}

/// Asks the owner of a shard for something.
pub(crate) fn ask(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    key: ShardKey,
    action: &ShardAction,
) -> Result<(), Failure> {
    let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
    let until = now.saturating_add(REQUEST_LASTS);
    let asked = coordinator.request_action(now, tenant, key, action, until, op_id);
    asked.map(drop).map_err(|error| match error {
        RequestActionError::BackendError(error) => Failure::store(&error),
        RequestActionError::ShardNotFound => no_shard(),
        error => not_asked(&error, key),
    })
}

/// Why the owner was not asked, and what to do about it.
fn not_asked(error: &RequestActionError, key: ShardKey) -> Failure {
    let failure = Failure::new(Code::Usage, "nothing was asked of the owner").why(error);
    match error {
        RequestActionError::NotLeased => failure.next(format!(
            "a shard that nobody holds goes to whoever asks first: gossip worker {:016x}",
            key.run().as_raw()
        )),
        RequestActionError::RequestPending => failure.next(format!(
            "the owner follows one request at a time and forgets it after {} s: try again; \
             if it is dead, gossip shard release {:016x} {:016x} --force",
            REQUEST_LASTS / 1000,
            key.run().as_raw(),
            key.shard().as_raw()
        )),
        _ => failure,
    }
}

fn describe(row: &ShardSummary) -> Record {
    let keys = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
    let record = Record::new()
        .with("shard", format!("{:016x}", row.shard.as_raw()))
        .with("status", status_word(row))
        .with("reason", row.park_reason.map(reason_word))
        .with("owner", row.owner.map(|owner| format!("{:016x}", owner.as_raw())))
        .with("lease_until", row.lease_deadline.map(|deadline| deadline.as_raw()))
        .with("fence", row.fence_epoch.as_raw())
        .with("grants", row.acquire_count)
        .with("keys", keys.map_or(0, |token| token.accumulator.count()))
        .with("unread", keys.map_or(0, |token| token.unread))
        .with("parent", row.parent.map(|parent| format!("{:016x}", parent.as_raw())));
    let record = match &row.last_key {
        Some(key) => record.with_bytes(["cursor", "cursor_hex"], key),
        None => record,
    };
    record.with_bytes(["start", "start_hex"], &row.start).with_bytes(["end", "end_hex"], &row.end)
}

const fn status_word(row: &ShardSummary) -> &'static str {
    match row.status {
        ShardStatus::Active if row.leased => "leased",
        ShardStatus::Active => "waiting",
        ShardStatus::Done => "done",
        ShardStatus::Split => "split",
        ShardStatus::Parked => "parked",
    }
}

const fn reason_word(reason: ParkReason) -> &'static str {
    match reason {
        ParkReason::PermissionDenied => "permission denied",
        ParkReason::NotFound => "not found",
        ParkReason::Poisoned => "poisoned",
        ParkReason::TooManyErrors => "too many errors",
        // The coordinator's enum may grow.
        ParkReason::Other | _ => "other",
    }
}

const fn key(arg: &ShardArg) -> ShardKey {
    ShardKey::new(RunId::from_raw(arg.run), ShardId::from_raw(arg.shard))
}

fn split_key(bytes: &[u8]) -> Result<SplitKey, Failure> {
    SplitKey::try_new(bytes).ok_or_else(|| {
        Failure::new(Code::Usage, "a key to split at is neither empty nor longer than a key may be")
    })
}

fn no_shard() -> Failure {
    Failure::new(Code::Usage, "the run has no such shard")
        .next("gossip shard list RUN shows them; check --store and --tenant")
}
