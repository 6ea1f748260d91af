//! `handoff`: planned moves of shards between workers.
//!
//! A move is asked for here and done by the owner, which hears of it when it renews. What is shown
//! comes from the records of the moves, beside what the shard itself says: the fence decides who
//! has it, whatever a record says.

use std::collections::BTreeSet;

use gossip::coordination::store::fresh_nonce;
use gossip::coordination::{
    RunManagement as _, ShardAction, ShardFilter, ShardSummary, WorkerEntry, WorkerState,
};
use gossip::handoff::lease_handoff::{
    Driver, HandoffConfig, HandoffSource, MoveOutcome, MoveTerms, SourceNext,
};
use gossip::handoff::{
    IN_PROGRESS_PAGE, Record as MoveRecord, RecordId, Repository as _, RepositoryError,
    StoreRepository, Stored,
};
use gossip::identity::{RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip::runtime::{Clock as _, SystemClock, worker_of};
use gossip::store::{AnyStore, Backend, Coordinator};

use crate::args::{Global, HandoffCommand};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::{runs, shards, store};

/// Steps in which a record whose move can no longer happen is brought to its end: it has six
/// phases, and each is looked at and saved.
const MAX_STEPS: usize = 32;

pub(crate) fn run(
    global: &Global,
    command: HandoffCommand,
    console: &Console,
) -> Result<Code, Failure> {
    let mut moves = Moves::new(&store::open_existing(global)?, store::tenant(global)?);
    match command {
        HandoffCommand::Start { shard, to } => {
            let key = ShardKey::new(RunId::from_raw(shard.run), ShardId::from_raw(shard.shard));
            moves.start(key, to.map(WorkerId::from_raw), console)?;
        }
        HandoffCommand::List { active } => moves.list(global, active, console)?,
        HandoffCommand::Show { id } => moves.show(global, &id)?,
        HandoffCommand::Rollback { id } => moves.rollback(&id, console)?,
        HandoffCommand::Workers => moves.workers(global)?,
    }
    Ok(Code::Complete)
}

/// Everything that a command about moves looks at.
struct Moves {
    coordinator: Coordinator,
    records: StoreRepository<AnyStore>,
    tenant: TenantId,
}

impl Moves {
    fn new(backend: &Backend, tenant: TenantId) -> Self {
        let records = StoreRepository::new(backend.store(), tenant, fresh_nonce());
        Self { coordinator: backend.coordinator(), records, tenant }
    }

    fn start(
        &mut self,
        key: ShardKey,
        to: Option<WorkerId>,
        console: &Console,
    ) -> Result<(), Failure> {
        if let Some(to) = to
            && !self.live_workers()?.iter().any(|entry| entry.worker == to)
        {
            return Err(Failure::new(Code::Usage, "nobody has heard of that worker lately")
                .next("gossip handoff workers shows who is there"));
        }
        // Workers of one run are known by their names; others would give the shard back.
        if to.is_some_and(|to| to != worker_of(key.run(), to.as_raw())) {
            return Err(Failure::new(Code::Usage, "that worker works on another run")
                .next("gossip handoff workers shows who is there: a worker's id begins with the last half of its run's"));
        }
        let action = ShardAction::HandOff(to);
        shards::ask(&mut self.coordinator, self.tenant, key, &action)?;
        let (run, shard) = (key.run().as_raw(), key.shard().as_raw());
        console.note(&format!(
            "asked; the owner hears of it when it renews, and keeps the shard if nobody takes it; \
             gossip shard show {run:016x} {shard:016x} tells who has it"
        ));
        Ok(())
    }

    fn list(&mut self, global: &Global, active: bool, console: &Console) -> Result<(), Failure> {
        let (mut rows, mut after, mut unreadable) = (Vec::new(), None, BTreeSet::new());
        loop {
            let page = self.records.page(after.as_ref(), IN_PROGRESS_PAGE);
            let page = page.map_err(|error| refused(&error))?;
            unreadable.extend(page.unreadable.iter().map(|number| number.as_raw()));
            for stored in page.found {
                if !(active && stored.record.state.is_terminal()) {
                    rows.push(self.describe(&stored.record)?);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        for number in unreadable {
            console.note(&format!(
                "record {number:016x} cannot be read: it is damaged, or of a newer gossip"
            ));
        }
        let columns = ["handoff", "phase", "run", "shard", "from", "to", "verdict"];
        output::list(global.output, &columns, &rows)
    }

    fn show(&mut self, global: &Global, id: &str) -> Result<(), Failure> {
        let record = self.get(id)?.record;
        let described = self
            .describe(&record)?
            .with("started_at", record.started_at.as_raw())
            .with("last_transition", record.last_transition.as_raw())
            .with("snapshot_bytes", record.snapshot.len())
            .with("error", (!record.error.is_empty()).then(|| record.error.clone()));
        output::one(global.output, &described)
    }

    /// Ends a move that has not happened. One that has is not undone: that is a move back.
    fn rollback(&mut self, id: &str, console: &Console) -> Result<(), Failure> {
        let stored = self.get(id)?;
        let terms = MoveTerms::of(&stored.record)
            .map_err(|error| Failure::new(Code::Usage, "this cannot be rolled back").why(error))?;
        if stored.record.state.is_terminal() {
            return Err(Failure::new(Code::Usage, format!("the move is {}", stored.record.state)));
        }
        match terms.outcome(self.shard(terms.key)?.as_ref()) {
            MoveOutcome::Moved => Err(Failure::new(Code::Usage, "the shard has moved already")
                .next(format!(
                    "to have it back: gossip handoff start {:016x} {:016x} --to {:016x}",
                    terms.key.run().as_raw(),
                    terms.key.shard().as_raw(),
                    terms.from.as_raw()
                ))),
            MoveOutcome::Before => {
                let action = &ShardAction::Withdraw;
                shards::ask(&mut self.coordinator, self.tenant, terms.key, action)?;
                console.note("asked; the owner takes its offer back when it renews");
                Ok(())
            }
            MoveOutcome::Superseded | MoveOutcome::Gone => self.end(stored, console),
        }
    }

    /// The shard has gone another way: the record follows.
    fn end(&mut self, stored: Stored, console: &Console) -> Result<(), Failure> {
        let clock = SystemClock::new();
        let mut source =
            HandoffSource::recover(stored, false, HandoffConfig::default(), clock.now()).map_err(
                |error| Failure::new(Code::Usage, "this cannot be rolled back").why(error),
            )?;
        for _ in 0..MAX_STEPS {
            let Self { coordinator, records, tenant } = self;
            let mut driver = Driver { tenant: *tenant, backend: coordinator, records };
            match driver.step_source(&mut source, None, clock.now()) {
                SourceNext::Again => {}
                SourceNext::Done(_) => {
                    console.note("rolled back: the shard has gone another way");
                    return Ok(());
                }
                SourceNext::Freeze | SourceNext::Wait(_) => break,
            }
        }
        Err(Failure::new(Code::Store, "the record could not be brought to its end")
            .next("try the same command again"))
    }

    fn workers(&mut self, global: &Global) -> Result<(), Failure> {
        let rows: Vec<_> = self.live_workers()?.iter().map(worker).collect();
        output::list(global.output, &["worker", "state", "expires_at"], &rows)
    }

    fn live_workers(&mut self) -> Result<Vec<WorkerEntry>, Failure> {
        let mut found = Vec::new();
        let listed =
            self.coordinator.list_workers_into(SystemClock::new().now(), self.tenant, &mut found);
        listed.map_err(|error| Failure::new(Code::Store, "the store failed").why(error))?;
        Ok(found)
    }

    fn get(&mut self, id: &str) -> Result<Stored, Failure> {
        let id = RecordId::new(id)
            .map_err(|error| Failure::new(Code::Usage, "that is no id of a move").why(error))?;
        self.records.get(&id).map_err(|error| refused(&error))
    }

    /// The shard of a move, if it is still there.
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
        let described =
            Record::new().with("handoff", record.id.as_str()).with("phase", record.state.label());
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
            .with("offer_deadline", terms.offer_deadline.as_raw())
            .with("verdict", verdict))
    }
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
        .with("expires_at", entry.expires_at.as_raw())
}

fn refused(error: &RepositoryError) -> Failure {
    match error {
        RepositoryError::RecordNotFound => Failure::new(Code::Usage, "there is no such move")
            .next("gossip handoff list shows them; check --store and --tenant"),
        error => Failure::new(Code::Store, "the records of moves cannot be read").why(error),
    }
}

#[cfg(test)]
#[path = "handoffs_tests.rs"]
mod tests;
