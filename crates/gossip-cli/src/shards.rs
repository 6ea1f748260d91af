//! `shard`: shows and controls shards.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

use gossip::coordination::protocol::fence_floor_at;
use gossip::coordination::{
    ParkReason, RepairShardError, RequestActionError, RevokeLeaseError, RunManagement as _,
    ShardAction, ShardDamage, ShardFilter, ShardStatus, ShardSummary, SplitKey, UnparkError,
};
use gossip::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip::runtime::{Clock as _, RuntimeToken, SystemClock, fresh_op_id};
use gossip::sources::KeyFormat;
use gossip::store::Coordinator;

use crate::args::{Global, ShardCommand};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Bound, Record};
use crate::reference::find_shard;
use crate::sources;
use crate::{runs, store};

/// Lifetime of a request in ticks; the owner receives it with its next renewal.
const REQUEST_TICKS: u64 = 60_000;

/// Ticks of the clock per second.
const TICKS: u64 = 1_000;

pub(crate) fn run(
    global: &Global,
    command: ShardCommand,
    console: &Console,
) -> Result<Code, Failure> {
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let mut control = Control { coordinator: backend.coordinator(), tenant, console };
    match command {
        ShardCommand::List { run, parked, damaged } => {
            let filter = match (parked, damaged) {
                (true, _) => ShardFilter::parked(),
                (false, true) => ShardFilter::damaged(),
                (false, false) => ShardFilter::all(),
            };
            let run = run.find(&mut control.coordinator, tenant)?;
            control.list(global, run, filter)?;
        }
        ShardCommand::Show(arg) => {
            let key = arg.find(&mut control.coordinator, tenant)?;
            control.show(global, key)?;
        }
        ShardCommand::Unpark { run, shard, all: _ } => {
            let coordinator = &mut control.coordinator;
            let run = run.find(coordinator, tenant)?;
            let find = |shard| find_shard(coordinator, tenant, run, shard);
            let shard = shard.map(find).transpose()?;
            control.unpark(run, shard)?;
        }
        ShardCommand::Repair(arg) => {
            let key = arg.find(&mut control.coordinator, tenant)?;
            control.repair(global, key)?;
        }
        ShardCommand::Split { shard, at } => {
            let key = shard.find(&mut control.coordinator, tenant)?;
            // Checked here, because the owner would refuse it only later and without an answer to
            // this user.
            let at = at.map(|at| control.split_key(key.run(), at.as_bytes())).transpose()?;
            control.request(key, &ShardAction::Split(at))?;
        }
        ShardCommand::Release { shard, force } => {
            let key = shard.find(&mut control.coordinator, tenant)?;
            match force {
                true => control.revoke(key)?,
                false => control.request(key, &ShardAction::Release)?,
            }
        }
    }
    Ok(Code::Complete)
}

struct Control<'c> {
    coordinator: Coordinator,
    tenant: TenantId,
    console: &'c Console,
}

impl Control<'_> {
    fn list(&mut self, global: &Global, run: RunId, filter: ShardFilter) -> Result<(), Failure> {
        let rows = runs::rows(&mut self.coordinator, self.tenant, run, filter)?;
        let format = runs::key_format(&rows);
        let records: Vec<_> = rows.iter().map(|row| describe(row, format)).collect();
        let columns =
            ["shard", "status", "reason", "owner", "fence", "keys", "cursor", "start", "end"];
        output::list(global.output, &columns, &records)?;
        let damaged: Vec<_> = rows.iter().filter(|row| row.damage.is_some()).collect();
        if let Some(text) = damaged_text(run, &damaged) {
            self.console.note(&text);
        }
        Ok(())
    }

    /// Rebuilds the record of a damaged shard.
    fn repair(&mut self, global: &Global, key: ShardKey) -> Result<(), Failure> {
        let run = key.run();
        // The bounds of the source: without them a range at its beginning or end cannot be derived.
        let job = runs::job_of(&mut self.coordinator, self.tenant, run).ok();
        let source = job.and_then(|job| sources::restore(&job.source, job.options).ok());
        let root = source.map(|source| source.root());
        let whole = root.as_ref().map(|root| (root.start(), root.end()));
        // The old fence may be lost with the record, so the floor is made of the time, which is
        // above it.
        let at_least = fence_floor_at(SystemClock::new().now().as_raw() / TICKS);
        let repaired = self.coordinator.repair_shard(self.tenant, key, at_least, whole);
        let repaired = repaired.map_err(|error| not_repaired(key, &error))?;
        let filter = ShardFilter::one(key.shard());
        // Read again: the record that was repaired is what the user wants to see.
        let rows = runs::rows(&mut self.coordinator, self.tenant, run, filter)?;
        if let Some(row) = rows.first() {
            output::one(global.output, &describe(row, runs::key_format(&rows)))?;
        }
        let id = run.as_raw();
        let next = format!("Next: repeat the command of the run, or `gossip worker {id:016x}`");
        let text = match (repaired.damage, repaired.status) {
            // First: such a shard has no progress of its own, whichever part was lost.
            (_, ShardStatus::Split) => "repaired; other shards cover its range".to_owned(),
            (ShardDamage::Hot | ShardDamage::Both, _) => {
                format!("repaired; it starts again at the first key of its range. {next}")
            }
            (ShardDamage::Cold, _) => format!("repaired; its progress is kept. {next}"),
        };
        self.console.note(&text);
        Ok(())
    }

    fn show(&mut self, global: &Global, key: ShardKey) -> Result<(), Failure> {
        let filter = ShardFilter::one(key.shard());
        let rows = runs::rows(&mut self.coordinator, self.tenant, key.run(), filter)?;
        let row = rows.first().ok_or_else(no_shard)?;
        output::one(global.output, &describe(row, runs::key_format(&rows)))
    }

    /// Returns the key of `--at`, written as `shard list` writes it.
    fn split_key(&mut self, run: RunId, text: &[u8]) -> Result<SplitKey, Failure> {
        // All shards of a run write their keys alike, so the few roots are enough.
        let filter = ShardFilter::all().roots();
        let format =
            runs::key_format(&runs::rows(&mut self.coordinator, self.tenant, run, filter)?);
        let key = format.parse(text).and_then(|key| SplitKey::try_new(&key));
        key.ok_or_else(|| {
            Failure::new(Code::Usage, "the value of --at is not a key of this run").next(
                "use a key as `gossip shard list` shows it: the path of a file below the \
                 directory, the number of a row, the offset of a line, or an integer",
            )
        })
    }

    fn unpark(&mut self, run: RunId, shard: Option<ShardId>) -> Result<(), Failure> {
        let shards = match shard {
            Some(shard) => vec![shard],
            None => {
                let filter = ShardFilter::parked();
                let rows = runs::rows(&mut self.coordinator, self.tenant, run, filter)?;
                // A damaged shard may be parked; only its repair shows it.
                let parked = rows.iter().filter(|row| row.damage.is_none());
                parked.map(|row| row.shard).collect()
            }
        };
        for shard in &shards {
            let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
            let key = ShardKey::new(run, *shard);
            let unparked = self.coordinator.unpark_shard(now, self.tenant, key, op_id);
            unparked.map_err(|error| match error {
                UnparkError::BackendError(error) => Failure::store(&error),
                UnparkError::ShardNotFound => no_shard(),
                UnparkError::NotParked { status } => not_unparked(status_text(status)),
                UnparkError::RunTerminal { status } => {
                    not_unparked(format!("the run is already {}", runs::status_word(status)))
                }
                error => not_unparked(error),
            })?;
        }
        if shards.is_empty() {
            self.console.note("no shard is parked");
            return Ok(());
        }
        self.console.note(&format!(
            "{} unparked. Next: repeat the command of the run, or `gossip worker {:016x}`",
            output::count(shards.len() as u64, "shard"),
            run.as_raw()
        ));
        Ok(())
    }

    fn request(&mut self, key: ShardKey, action: &ShardAction) -> Result<(), Failure> {
        request(&mut self.coordinator, self.tenant, key, action)?;
        self.console.note("requested; takes effect at the owner's next lease renewal");
        Ok(())
    }

    fn revoke(&mut self, key: ShardKey) -> Result<(), Failure> {
        let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
        let revoked = self.coordinator.revoke_lease(now, self.tenant, key, None, op_id);
        revoked.map_err(|error| match error {
            RevokeLeaseError::BackendError(error) => Failure::store(&error),
            RevokeLeaseError::ShardNotFound => no_shard(),
            RevokeLeaseError::ShardTerminal { status } => not_revoked(status_text(status)),
            RevokeLeaseError::NotLeased => not_revoked("no worker holds the shard"),
            error => not_revoked(error),
        })?;
        self.console.note("revoked; the store rejects the previous owner from now on");
        Ok(())
    }
}

/// Stores a request to the owner of a shard.
pub(crate) fn request(
    coordinator: &mut Coordinator,
    tenant: TenantId,
    key: ShardKey,
    action: &ShardAction,
) -> Result<(), Failure> {
    let (now, op_id) = (SystemClock::new().now(), fresh_op_id());
    // Bounded, so that the request of an owner that has died does not block others for ever.
    let until = now.saturating_add(REQUEST_TICKS);
    let requested = coordinator.request_action(now, tenant, key, action, until, op_id);
    requested.map(drop).map_err(|error| match error {
        RequestActionError::BackendError(error) => Failure::store(&error),
        RequestActionError::ShardNotFound => no_shard(),
        error => not_requested(&error, key),
    })
}

/// Describes why a request was not stored.
fn not_requested(error: &RequestActionError, key: ShardKey) -> Failure {
    let failure = Failure::new(Code::Usage, "the request was not stored");
    let (run, shard) = (key.run().as_raw(), key.shard().as_raw());
    match error {
        RequestActionError::NotLeased => failure
            .why("no worker holds the shard")
            .next(format!("start a worker, which claims free shards: gossip worker {run:016x}")),
        RequestActionError::RequestPending => {
            failure.why("another request to the owner is pending").next(format!(
                "try again within {} s; if the owner is dead: \
                 gossip shard release {run:016x} {shard:016x} --force",
                REQUEST_TICKS / 1000
            ))
        }
        RequestActionError::ShardTerminal { status } => failure.why(status_text(*status)),
        RequestActionError::RunTerminal { status } => {
            failure.why(format!("the run is already {}", runs::status_word(*status)))
        }
        error => failure.why(error),
    }
}

/// Describes why a shard was not repaired.
fn not_repaired(key: ShardKey, error: &RepairShardError) -> Failure {
    let failure = Failure::new(Code::Usage, "the shard was not repaired");
    let run = key.run().as_raw();
    match error {
        RepairShardError::BackendError(error) => Failure::store(error),
        RepairShardError::ShardNotFound => no_shard(),
        RepairShardError::NotDamaged => failure.why("its record is intact"),
        RepairShardError::RunTerminal { status } => failure
            .why(format!("the run is already {}", runs::status_word(*status)))
            .next("start a new run: repeat its command with --restart"),
        error => failure.why(error).next(format!(
            "cancel the run and start a new one: gossip run cancel {run:016x}, then repeat its \
             command"
        )),
    }
}

/// Names the damaged shards of a run and the command that repairs the first; `None` if there is
/// none.
pub(crate) fn damaged_text(run: RunId, damaged: &[&ShardSummary]) -> Option<String> {
    let first = damaged.first()?.shard.as_raw();
    let (id, shards) = (run.as_raw(), output::count(damaged.len() as u64, "shard"));
    Some(format!(
        "{shards} damaged, the first is {first:016x}. List: `gossip shard list {id:016x} \
         --damaged`. Repair: `gossip shard repair {id:016x} {first:016x}`"
    ))
}

fn not_unparked(why: impl fmt::Display) -> Failure {
    Failure::new(Code::Usage, "the shard was not unparked").why(why)
}

fn not_revoked(why: impl fmt::Display) -> Failure {
    Failure::new(Code::Usage, "the lease was not revoked").why(why)
}

fn status_text(status: ShardStatus) -> &'static str {
    match status {
        ShardStatus::Active => "the shard is active",
        ShardStatus::Done => "the shard is already done",
        ShardStatus::Split => "the shard is already split",
        ShardStatus::Parked => "the shard is parked",
    }
}

fn describe(row: &ShardSummary, format: KeyFormat) -> Record {
    let keys = row.token.as_deref().and_then(|token| RuntimeToken::decode(token).ok());
    let record = Record::new()
        .with("shard", format!("{:016x}", row.shard.as_raw()))
        .with("status", status_word(row))
        .with("damage", row.damage.map(damage_word))
        .with("reason", row.park_reason.map(reason_word))
        .with("error", row.park_context.as_deref())
        .with("owner", row.owner.map(|owner| format!("{:016x}", owner.as_raw())))
        .with_time("lease_until", row.lease_deadline)
        .with("fence", row.fence_epoch.as_raw())
        .with("grants", row.acquire_count)
        // Unread items are in the count, because the cursor has passed them.
        .with("keys", keys.map_or(0, |token| token.accumulator.count() - token.unread))
        .with("unread", keys.map_or(0, |token| token.unread))
        .with("parent", row.parent.map(|parent| format!("{:016x}", parent.as_raw())));
    let record = match &row.last_key {
        Some(key) => record.with_bytes(["cursor", "cursor_hex"], &format.text(key)),
        None => record,
    };
    record.with_bound(["start", "start_hex"], (&row.start, Bound::Start), format).with_bound(
        ["end", "end_hex"],
        (&row.end, Bound::End),
        format,
    )
}

/// Returns the damaged part of a record, as docs/storage-format.md names it.
const fn damage_word(damage: ShardDamage) -> &'static str {
    match damage {
        ShardDamage::Hot => "hot part",
        ShardDamage::Cold => "cold part",
        ShardDamage::Both => "both parts",
    }
}

const fn status_word(row: &ShardSummary) -> &'static str {
    match row.status {
        // First, because the status of a damaged record cannot be relied on.
        _ if row.damage.is_some() => "damaged",
        ShardStatus::Active if row.leased => "leased",
        ShardStatus::Active => "waiting",
        ShardStatus::Done => "done",
        ShardStatus::Split => "split",
        ShardStatus::Parked => "parked",
    }
}

/// Returns the park reason in words.
pub(crate) const fn reason_word(reason: ParkReason) -> &'static str {
    match reason {
        ParkReason::PermissionDenied => "permission denied",
        ParkReason::NotFound => "not found",
        // An item, or a source that cannot be listed.
        ParkReason::Poisoned => "failed",
        ParkReason::TooManyErrors => "too many errors",
        // The coordinator's enum may grow.
        ParkReason::Other | _ => "other",
    }
}

fn no_shard() -> Failure {
    Failure::new(Code::Usage, "no such shard")
        .next("list the shards of the run: gossip shard list RUN; check --store and --tenant")
}
