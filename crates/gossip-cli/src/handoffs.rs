//! `handoff`: planned handoffs of shards between workers.
//!
//! These commands store a request; the lease holder receives it with its next renewal and performs
//! the handoff. Listings combine the handoff records with the state of the shard, whose fence
//! decides who owns it.

use std::collections::BTreeSet;

use gossip::coordination::store::fresh_nonce;
use gossip::coordination::{
    RunManagement as _, ShardAction, ShardFilter, ShardSummary, WorkerEntry, WorkerState,
};
use gossip::handoff::lease_handoff::{
    Driver, HandoffConfig, HandoffSource, MoveOutcome, MoveTerms, SourceNext,
};
use gossip::handoff::{
    IN_PROGRESS_PAGE, Phase, Record as MoveRecord, RecordId, Repository as _, RepositoryError,
    StoreRepository, Stored,
};
use gossip::identity::{ShardKey, TenantId};
use gossip::runtime::{Clock as _, SystemClock, worker_of};
use gossip::store::{AnyStore, Backend, Coordinator};

use crate::args::{Global, HandoffCommand};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::reference::{IdStart, choose};
use crate::{runs, shards, store};

/// Maximum steps to close the record of a handoff that can no longer happen: it has six phases,
/// each of which is loaded and saved.
const MAX_STEPS: usize = 32;

pub(crate) fn run(
    global: &Global,
    command: HandoffCommand,
    console: &Console,
) -> Result<Code, Failure> {
    let mut handoffs = Handoffs::new(&store::open_existing(global)?, store::tenant(global)?);
    match command {
        HandoffCommand::Start { shard, to } => {
            let tenant = handoffs.tenant;
            let key = shard.find(&mut handoffs.coordinator, tenant)?;
            handoffs.start(key, to, console)?;
        }
        HandoffCommand::List { active } => handoffs.list(global, active, console)?,
        HandoffCommand::Show { id } => handoffs.show(global, &id)?,
        HandoffCommand::Rollback { id } => handoffs.rollback(&id, console)?,
        HandoffCommand::Workers => handoffs.workers(global)?,
    }
    Ok(Code::Complete)
}

/// State of the handoff commands.
struct Handoffs {
    coordinator: Coordinator,
    records: StoreRepository<AnyStore>,
    tenant: TenantId,
}

impl Handoffs {
    fn new(backend: &Backend, tenant: TenantId) -> Self {
        // Fresh, because each handle of the store needs another one.
        let records = StoreRepository::new(backend.store(), tenant, fresh_nonce());
        Self { coordinator: backend.coordinator(), records, tenant }
    }

    fn start(
        &mut self,
        key: ShardKey,
        to: Option<IdStart>,
        console: &Console,
    ) -> Result<(), Failure> {
        let target = to.map(|to| self.live_worker(to)).transpose()?;
        let to = target.map(|entry| entry.worker);
        // A worker's id contains its run's. A worker of another run would release the shard.
        if to.is_some_and(|to| to != worker_of(key.run(), to.as_raw())) {
            return Err(Failure::new(Code::Usage, "that worker works on another run")
                .next("list the live workers: gossip handoff workers; a worker's id begins with the second half of its run's id"));
        }
        let action = ShardAction::HandOff(to);
        shards::request(&mut self.coordinator, self.tenant, key, &action)?;
        let (run, shard) = (key.run().as_raw(), key.shard().as_raw());
        console.note(&format!(
            "requested; takes effect at the owner's next lease renewal. \
             Show the owner: `gossip shard show {run:016x} {shard:016x}`"
        ));
        // No error: the worker may be idle by the time the owner sees the request.
        if target.is_some_and(|entry| entry.state != WorkerState::Idle) {
            console.note(
                "the target has no idle thread; the owner keeps the shard unless one becomes idle",
            );
        }
        Ok(())
    }

    fn live_worker(&mut self, start: IdStart) -> Result<WorkerEntry, Failure> {
        let live = self.live_workers()?;
        let chosen = choose("worker", start, live.iter().map(|entry| entry.worker.as_raw()))?;
        let found = live.into_iter().find(|entry| Some(entry.worker.as_raw()) == chosen);
        found.ok_or_else(|| {
            Failure::new(Code::Usage, "no such live worker")
                .next("list the live workers: gossip handoff workers")
        })
    }

    fn list(&mut self, global: &Global, active: bool, console: &Console) -> Result<(), Failure> {
        let (mut rows, mut after, mut unreadable) = (Vec::new(), None, BTreeSet::new());
        loop {
            // By pages, because finished handoffs stay in the store for a long time.
            let page = self.records.page(after.as_ref(), IN_PROGRESS_PAGE);
            let page = page.map_err(|error| repository_failure(&error))?;
            unreadable.extend(page.unreadable.iter().map(|number| number.as_raw()));
            for stored in page.found {
                if !(active && stored.record.state.is_terminal()) {
                    let described = self.describe(&stored.record)?;
                    rows.push((stored.record.id, described));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        // Behind the loop and without duplicates: a record may be met on several pages.
        for number in unreadable {
            console.note(&format!(
                "handoff record {number:016x} cannot be read: it is damaged or of a newer format"
            ));
        }
        let short = short_ids(rows.iter().map(|(id, _)| id));
        let rows = rows.into_iter().zip(short).map(|((_, described), short)| {
            if global.output.is_wide() { described } else { described.showing("handoff", short) }
        });
        let rows: Vec<Record> = rows.collect();
        let columns = ["handoff", "phase", "run", "shard", "from", "to", "verdict"];
        output::list(global.output, &columns, &rows)
    }

    fn show(&mut self, global: &Global, id: &str) -> Result<(), Failure> {
        let record = self.get(id)?.record;
        let described = self
            .describe(&record)?
            .with_time("started_at", Some(record.started_at))
            .with_time("last_transition", Some(record.last_transition))
            .with("snapshot_bytes", record.snapshot.len())
            .with("error", (!record.error.is_empty()).then(|| record.error.clone()));
        output::one(global.output, &described)
    }

    /// Withdraws a handoff that has not completed. A completed one needs a handoff back.
    fn rollback(&mut self, id: &str, console: &Console) -> Result<(), Failure> {
        let stored = self.get(id)?;
        let terms = MoveTerms::of(&stored.record).map_err(|error| {
            Failure::new(Code::Usage, "the handoff cannot be rolled back").why(error)
        })?;
        if stored.record.state.is_terminal() {
            return Err(Failure::new(
                Code::Usage,
                format!("the handoff is already {}", phase_word(stored.record.state)),
            ));
        }
        // By the fence of the shard: the record may be older than what has happened.
        match terms.outcome(self.shard(terms.key)?.as_ref()) {
            MoveOutcome::Moved => {
                Err(Failure::new(Code::Usage, "the handoff has completed").next(format!(
                    "hand the shard back: gossip handoff start {:016x} {:016x} --to {:016x}",
                    terms.key.run().as_raw(),
                    terms.key.shard().as_raw(),
                    terms.from.as_raw()
                )))
            }
            MoveOutcome::Before => {
                let action = &ShardAction::Withdraw;
                shards::request(&mut self.coordinator, self.tenant, terms.key, action)?;
                console.note("requested; the owner withdraws its offer at its next lease renewal");
                Ok(())
            }
            // There is no owner any more that could withdraw it.
            MoveOutcome::Superseded | MoveOutcome::Gone => self.close(stored, console),
        }
    }

    /// Closes the record of a handoff that can no longer happen.
    fn close(&mut self, stored: Stored, console: &Console) -> Result<(), Failure> {
        let clock = SystemClock::new();
        let mut source =
            HandoffSource::recover(stored, false, HandoffConfig::default(), clock.now()).map_err(
                |error| Failure::new(Code::Usage, "the handoff cannot be rolled back").why(error),
            )?;
        for _ in 0..MAX_STEPS {
            let Self { coordinator, records, tenant } = self;
            let mut driver = Driver { tenant: *tenant, backend: coordinator, records };
            match driver.step_source(&mut source, None, clock.now()) {
                SourceNext::Again => {}
                SourceNext::Done(_) => {
                    console.note("rolled back: the shard has another owner or is finished");
                    return Ok(());
                }
                // Both are for a live owner, which this process is not.
                SourceNext::Freeze | SourceNext::Wait(_) => break,
            }
        }
        Err(Failure::new(Code::Store, "the handoff record could not be closed")
            .next("run the same command again"))
    }

    fn workers(&mut self, global: &Global) -> Result<(), Failure> {
        let rows: Vec<_> = self.live_workers()?.iter().map(worker).collect();
        output::list(global.output, &["worker", "state", "expires_at"], &rows)
    }

    fn live_workers(&mut self) -> Result<Vec<WorkerEntry>, Failure> {
        let mut found = Vec::new();
        let listed =
            self.coordinator.list_workers_into(SystemClock::new().now(), self.tenant, &mut found);
        listed.map_err(|error| Failure::new(Code::Store, "store error").why(error))?;
        Ok(found)
    }

    fn get(&mut self, id: &str) -> Result<Stored, Failure> {
        let whole = RecordId::new(id)
            .map_err(|error| Failure::new(Code::Usage, "invalid handoff id").why(error))?;
        match self.records.get(&whole) {
            Err(RepositoryError::RecordNotFound) => self.get_by_start(id),
            found => found.map_err(|error| repository_failure(&error)),
        }
    }

    /// Finds the only handoff that a short id means.
    fn get_by_start(&mut self, typed: &str) -> Result<Stored, Failure> {
        let (mut found, mut after) = (None, None);
        loop {
            let page = self.records.page(after.as_ref(), IN_PROGRESS_PAGE);
            let page = page.map_err(|error| repository_failure(&error))?;
            for stored in page.found {
                if means(typed, stored.record.id.as_str()) && found.replace(stored).is_some() {
                    let what = "that is the beginning of more than one handoff";
                    return Err(Failure::new(Code::Usage, what)
                        .next("type the whole id: gossip handoff list -o wide"));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        found.ok_or_else(|| repository_failure(&RepositoryError::RecordNotFound))
    }

    /// Returns the shard of a handoff, if it still exists.
    fn shard(&mut self, key: ShardKey) -> Result<Option<ShardSummary>, Failure> {
        let filter = ShardFilter::one(key.shard());
        match runs::rows(&mut self.coordinator, self.tenant, key.run(), filter) {
            Ok(rows) => Ok(rows.into_iter().next()),
            // The run was deleted, and its shards with it.
            Err(failure) if failure.code == Code::Usage => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn describe(&mut self, record: &MoveRecord) -> Result<Record, Failure> {
        let described = Record::new()
            .with("handoff", record.id.as_str())
            .with("phase", phase_word(record.state));
        // A record of another program has subjects that are no shards; it is listed all the same.
        let Ok(terms) = MoveTerms::of(record) else {
            return Ok(described
                .with("subject", record.subject.as_str())
                .with("from", record.from.as_str())
                .with("to", record.to.as_str()));
        };
        let verdict = match terms.outcome(self.shard(terms.key)?.as_ref()) {
            MoveOutcome::Before => "not moved",
            MoveOutcome::Moved => "moved",
            MoveOutcome::Superseded => "superseded",
            MoveOutcome::Gone => "gone",
        };
        Ok(described
            .with("run", format!("{:016x}", terms.key.run().as_raw()))
            .with("shard", format!("{:016x}", terms.key.shard().as_raw()))
            .with("from", format!("{:016x}", terms.from.as_raw()))
            .with("to", format!("{:016x}", terms.to.as_raw()))
            .with("fence", terms.fence.as_raw())
            .with_time("offer_deadline", Some(terms.offer_deadline))
            .with("verdict", verdict))
    }
}

/// Digits of a run and a shard in a short id.
const SHORT_DIGITS: usize = 8;

/// Returns whether a text means a handoff: the beginnings of the first parts of its id, run and
/// shard, and as far as they are typed the numbers behind them, without zeros before them.
fn means(typed: &str, id: &str) -> bool {
    let (parts, id): (Vec<&str>, Vec<&str>) = (typed.split('-').collect(), id.split('-').collect());
    let is_part = |(place, (typed, part)): (usize, (&&str, &&str))| match place {
        0 | 1 => !typed.is_empty() && part.starts_with(*typed),
        _ => typed.trim_start_matches('0') == part.trim_start_matches('0'),
    };
    parts.len() <= id.len() && parts.iter().zip(&id).enumerate().all(is_part)
}

/// Returns the shortest texts of this kind that mean these handoffs: beginnings of run and shard,
/// then fence and attempt, where they are needed.
fn short_ids<'i>(ids: impl Iterator<Item = &'i RecordId>) -> Vec<String> {
    let ids: Vec<&str> = ids.map(RecordId::as_str).collect();
    let short = |id: &&str| {
        let parts: Vec<&str> = id.split('-').collect();
        // A record of another program has an id of its own form.
        let &[run, shard, fence, attempt] = &parts[..] else { return (*id).to_owned() };
        let (Some(run), Some(start)) = (run.get(..SHORT_DIGITS), shard.get(..SHORT_DIGITS)) else {
            return (*id).to_owned();
        };
        let number = |text: &str| format!("{:0>1}", text.trim_start_matches('0'));
        let texts = [
            format!("{run}-{start}"),
            format!("{run}-{shard}"),
            format!("{run}-{shard}-{}", number(fence)),
            format!("{run}-{shard}-{}-{}", number(fence), number(attempt)),
        ];
        let is_unique = |text: &&String| ids.iter().filter(|id| means(text, id)).count() == 1;
        texts.iter().find(is_unique).map_or_else(|| (*id).to_owned(), String::clone)
    };
    ids.iter().map(short).collect()
}

fn worker(entry: &WorkerEntry) -> Record {
    let state = match entry.state {
        WorkerState::Working => "working",
        WorkerState::Idle => "idle",
        WorkerState::Draining => "draining",
        // The coordinator's enum may grow.
        _ => "other",
    };
    Record::new()
        .with("worker", format!("{:016x}", entry.worker.as_raw()))
        .with("state", state)
        .with_time("expires_at", Some(entry.expires_at))
}

fn repository_failure(error: &RepositoryError) -> Failure {
    match error {
        RepositoryError::RecordNotFound => Failure::new(Code::Usage, "no such handoff")
            .next("list the handoffs: gossip handoff list; check --store and --tenant"),
        error => Failure::new(Code::Store, "the handoff records cannot be read").why(error),
    }
}

/// Returns the phase in words.
const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Ack => "acknowledged",
        Phase::RolledBack => "rolled back",
        Phase::Lock | Phase::Serialize | Phase::Transfer | Phase::Unlock | Phase::Complete => {
            phase.label()
        }
    }
}

#[cfg(test)]
#[path = "handoffs_tests.rs"]
mod tests;
