//! The thread for what a client asks of the store: pages of failures, changes, certificates.
//!
//! Its queue is short, so a slow store makes clients wait or try again, and never fills memory.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use gossip::coordination::{
    ExitCause, FailureKind, FailureRecord, InfraError, RequestActionError, RunManagement as _,
    RunTransitionError, ShardAction, ShardFilter, SideRecord, SideRecordId, SideRecordKind,
    StoredSideRecord, UnparkError,
};
use gossip::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip::runtime::{Clock as _, SystemClock, fresh_op_id};
use gossip::sources::KeyFormat;
use tokio::sync::oneshot;

use crate::access::Certificate;
use crate::answers::{Answers, Change, Known};
use crate::events::Events;
use crate::follow::Parked;
use crate::problem::{Code, Problem};
use crate::sampler::{Coordinator, coordinator};
use crate::state::{Shared, Warning, add};
use crate::wire::{Action, Done, Failure, FailurePage, Verb};

/// Requests that wait.
const QUEUE: usize = 64;

/// How long a client waits for one.
const PATIENCE: Duration = Duration::from_secs(55);

/// Failures per page, and records per read.
pub(crate) const PAGE_MAX: usize = 100;
const RECORDS: usize = 32;

/// Reads for one page of unread items: between them lie the records of failed items.
const READS_MAX: usize = 8;

/// Shards that one retry makes claimable; the answer says how many remain.
const RETRY_MAX: usize = 100;

/// Lifetime of a request to a lease holder, in ticks; it is received with the next renewal.
const REQUEST_TICKS: u64 = 60_000;

/// Certificates that are kept; a finished run does not change.
const CERTIFICATES_MAX: usize = 8;

/// Requests to the store that a change takes at most, if nothing conflicts.
const CHANGE_REQUESTS: usize = 2;

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// Sends requests to the desk.
#[derive(Clone, Debug)]
pub(crate) struct DeskHandle(SyncSender<Job>);

impl DeskHandle {
    /// Runs `work` on the thread of the desk, and returns its result.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (answer, result) = oneshot::channel();
        let job: Job = Box::new(move |desk| {
            // A client that has left needs no work.
            if !answer.is_closed() {
                drop(answer.send(work(desk)));
            }
        });
        // Not `send`: a full queue must not block a thread of the runtime, which serves other
        // clients.
        match self.0.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                return Err(Code::Busy.into());
            }
        }
        // Shorter than the limit of a request, so that the client gets the reason and not that of
        // the limit.
        match tokio::time::timeout(PATIENCE, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Problem::new(Code::Busy).detail("the request failed in the server")),
            Err(_) => Err(Problem::new(Code::Busy).detail("the store is slow; try again")),
        }
    }
}

/// Returns a handle and its desk, which [`Desk::run`] serves.
pub(crate) fn open(shared: Arc<Shared>) -> (DeskHandle, Desk) {
    let (send, jobs) = sync_channel(QUEUE);
    let (reader, opened) = coordinator(&shared);
    let tenant = shared.options.tenant;
    let desk = Desk {
        writer: shared.backend().0.coordinator(),
        shared,
        tenant,
        jobs: Some(jobs),
        reader,
        opened,
        certificates: VecDeque::new(),
        answers: Answers::default(),
    };
    (DeskHandle(send), desk)
}

/// Where a page of failures begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCursor {
    /// Behind this parked shard.
    Parked(Option<ShardId>),
    /// Behind this record of an unread item.
    Unread(Option<SideRecordId>),
}

impl FailureCursor {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() <= 16);
        match text.split_at_checked(1)? {
            // The letter keeps the two parts of the list apart: both are numbered by shards.
            ("p", shard) => Some(Self::Parked(Some(ShardId::from_raw(hex(shard)?)))),
            ("u", "") => Some(Self::Unread(None)),
            ("u", id) => {
                let (group, number) = id.split_once('-')?;
                let id = SideRecordId { group: hex(group)?, number: hex(number)? };
                Some(Self::Unread(Some(id)))
            }
            _ => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Parked(shard) => {
                format!("p{:016x}", shard.map_or(0, ShardId::as_raw))
            }
            Self::Unread(None) => "u".to_owned(),
            Self::Unread(Some(id)) => format!("u{:x}-{:x}", id.group, id.number),
        }
    }
}

/// Serves requests, one after another.
pub(crate) struct Desk {
    shared: Arc<Shared>,
    tenant: TenantId,
    jobs: Option<Receiver<Job>>,
    reader: Coordinator,
    writer: gossip::store::Coordinator,
    /// How often the store had been opened when the handles were made.
    opened: u64,
    certificates: VecDeque<(RunId, Certificate)>,
    answers: Answers,
}

impl Desk {
    /// Serves until every handle is gone.
    pub(crate) fn run(mut self) {
        let Some(jobs) = self.jobs.take() else { return };
        for job in jobs {
            let (backend, opened) = self.shared.backend();
            // Handles of a store that was opened again keep the connection of the old one.
            if opened != self.opened {
                (self.reader, self.opened) = coordinator(&self.shared);
                self.writer = backend.coordinator();
            }
            // Its client gets an error because the sender of the answer is dropped.
            if catch_unwind(AssertUnwindSafe(|| job(&mut self))).is_err() {
                let failed = self.shared.note_panic();
                self.shared.warn(Warning::Desk, Some(&failed));
                // What the handles remember may be half changed.
                self.opened = u64::MAX;
            }
        }
    }

    /// Returns a page of failed items in the order of their shards, then of unread ones.
    pub(crate) fn failures(
        &mut self,
        run: RunId,
        cursor: FailureCursor,
        limit: usize,
    ) -> Result<FailurePage, Problem> {
        let state = self.shared.read();
        let entry = state.runs.get(&run).ok_or(Code::RunNotFound)?;
        // A copy, so that the lock is free while the store is read.
        let (parked, format) = (Arc::clone(&entry.parked), entry.format);
        let counts = entry.summary.shards.ok_or(Code::NotReadYet)?;
        let unread = entry.summary.unread.unwrap_or(0);
        drop(state);
        let failed = counts.parked + counts.damaged;
        let mut page = FailurePage { failures: Vec::new(), next: None, failed, unread };
        let mut after = None;
        match cursor {
            FailureCursor::Parked(behind) => {
                let skip = behind
                    .map_or(0, |behind| parked.partition_point(|parked| parked.shard <= behind));
                let rest = &parked[skip..];
                let chosen = &rest[..rest.len().min(limit)];
                page.failures = self.parked(run, chosen, format)?;
                if chosen.len() < rest.len() {
                    let last = chosen.last().map(|parked| parked.shard);
                    page.next = Some(FailureCursor::Parked(last).text());
                    return Ok(page);
                }
            }
            FailureCursor::Unread(behind) => after = behind,
        }
        if unread > 0 {
            self.unread(run, after, limit, format, &mut page)?;
        }
        Ok(page)
    }

    /// Describes parked shards, with the newest record of each.
    fn parked(
        &mut self,
        run: RunId,
        chosen: &[Parked],
        format: KeyFormat,
    ) -> Result<Vec<Failure>, Problem> {
        let mut records: BTreeMap<u64, FailureRecord> = BTreeMap::new();
        for parked in chosen {
            let group = parked.shard.as_raw();
            // An earlier read had the records of this shard as well.
            if records.contains_key(&group) {
                continue;
            }
            // Records lie in the order of the shards: one read has those of several.
            let after = SideRecordId { group: group.wrapping_sub(1), number: u64::MAX };
            let after = (group > 0).then_some(after);
            for stored in self.records(run, after)? {
                let SideRecord::Failure(record) = stored.record else { continue };
                // An unread item of the same shard has its record there, too.
                if record.kind != FailureKind::Failed {
                    continue;
                }
                let newest = records.entry(stored.id.group).or_insert_with(|| record.clone());
                if newest.at < record.at {
                    *newest = record;
                }
            }
        }
        Ok(chosen
            .iter()
            .map(|parked| match records.get(&parked.shard.as_raw()) {
                Some(record) => Failure {
                    shard: Some(format!("{:016x}", parked.shard.as_raw())),
                    reason: Some(parked.reason),
                    ..described("failed", record, format)
                },
                None => without_record(parked, format),
            })
            .collect())
    }

    fn unread(
        &mut self,
        run: RunId,
        mut after: Option<SideRecordId>,
        limit: usize,
        format: KeyFormat,
        page: &mut FailurePage,
    ) -> Result<(), Problem> {
        for _ in 0..READS_MAX {
            let stored = self.records(run, after)?;
            let is_last = stored.len() < RECORDS;
            for stored in stored {
                if page.failures.len() >= limit {
                    page.next = Some(FailureCursor::Unread(after).text());
                    return Ok(());
                }
                // Before the kind is known: the next page begins behind every record that was
                // looked at.
                after = Some(stored.id);
                let SideRecord::Failure(record) = stored.record else { continue };
                if record.kind == FailureKind::Unread {
                    page.failures.push(described("unread", &record, format));
                }
            }
            if is_last {
                return Ok(());
            }
        }
        // Not the end, but the reads of one request are used up.
        page.next = Some(FailureCursor::Unread(after).text());
        Ok(())
    }

    fn records(
        &mut self,
        run: RunId,
        after: Option<SideRecordId>,
    ) -> Result<Vec<StoredSideRecord>, Problem> {
        let mut page = Vec::new();
        let kind = SideRecordKind::Failure;
        let listed =
            self.reader.list_side_records_into(self.tenant, run, kind, after, RECORDS, &mut page);
        listed.map_err(|error| unreachable(&error))?;
        Ok(page)
    }

    /// Reads the events of a run, unless another client has asked for that a moment ago.
    pub(crate) fn events(&mut self, run: RunId) -> Result<Arc<Events>, Problem> {
        let started = Instant::now();
        // Requests that waited in the queue meanwhile are answered by the first one's read.
        if let Some(known) = self.shared.events.recent(run, started) {
            return Ok(known);
        }
        let read = Events::read(&mut self.reader, self.tenant, run);
        let read = read.map_err(|error| match error.cause() {
            InfraError::Corruption { .. } => {
                Problem::new(Code::RunUnreadable).detail("an event of the run cannot be read")
            }
            _ => unreachable(&error),
        })?;
        Ok(self.shared.events.put(run, read, started, Instant::now()))
    }

    /// Returns the certificate of a run, from memory if it was made before.
    pub(crate) fn certificate(&mut self, run: RunId) -> Result<Certificate, Problem> {
        if let Some((_, known)) = self.certificates.iter().find(|(known, _)| *known == run) {
            return Ok(known.clone());
        }
        let made = self.shared.access.certificate(run);
        let made = made.map_err(|why| Problem::new(Code::NoCertificate).detail(why))?;
        // A run with parked shards may still change.
        if made.is_complete {
            self.certificates.push_back((run, made.clone()));
        }
        if self.certificates.len() > CERTIFICATES_MAX {
            self.certificates.pop_front();
        }
        Ok(made)
    }

    /// Makes a change, or describes it. With the key of a change that was made before, repeats its
    /// answer: a request to a lease holder leaves no trace in the store once it was received.
    pub(crate) fn act(&mut self, action: &Action, key: Option<&str>) -> Result<Done, Problem> {
        let run = id("run", Some(&action.run))?;
        let run = RunId::from_raw(run);
        let shard = match action.shard.as_deref() {
            Some(shard) => Some(ShardId::from_raw(id("shard", Some(shard))?)),
            None => None,
        };
        // First, because it checks the parameters: a dry run refuses what the change would refuse.
        let command = self.command(action, run, shard)?;
        if action.dry_run {
            return Ok(Done { message: String::new(), command, is_replay: false });
        }
        add(&self.shared.counters.actions);
        let change = Change::new(action, run, shard)?;
        let known = key.map_or(Known::Never, |key| self.answers.find(key, &change));
        let until = match known {
            Known::Done(message) => return Ok(Done { message, command, is_replay: true }),
            Known::Otherwise => return Err(Code::IdempotencyConflict.into()),
            Known::Begun(until) => until,
            Known::Never => SystemClock::new().now().saturating_add(REQUEST_TICKS),
        };
        if let Some(key) = key {
            // Before the change: its deadline is a parameter, and a retry after a lost reply must
            // send the same one.
            self.answers.keep(key, change, until, None);
        }
        let made = self.execute(action, (run, shard), key, until);
        match (&made, key) {
            (_, None) => {}
            (Ok((message, _)), Some(key)) => {
                self.answers.keep(key, change, until, Some(message.clone()));
            }
            // It may have been executed although its reply was lost.
            (Err(problem), Some(_)) if problem.code == Code::StoreUnreachable => {}
            // Refused for certain, so the same key may be tried again.
            (Err(_), Some(key)) => self.answers.forget(key, &change),
        }
        let (message, is_replay) = made?;
        // The client wants to see the effect, so the run is read next.
        self.shared.want(run);
        Ok(Done { message, command, is_replay })
    }

    /// Makes a change. Returns what happened, and whether it had been made before.
    fn execute(
        &mut self,
        action: &Action,
        (run, shard): (RunId, Option<ShardId>),
        key: Option<&str>,
        until: LogicalTime,
    ) -> Result<(String, bool), Problem> {
        let of = |shard| ShardKey::new(run, shard);
        match (action.action, shard) {
            (Verb::Pause, _) => self.transition(Transition::Pause, run, key),
            (Verb::Resume, _) => self.transition(Transition::Resume, run, key),
            (Verb::Cancel, _) => self.transition(Transition::Cancel, run, key),
            // Before the line below: of all verbs on shards only this one is allowed without a
            // shard.
            (Verb::Retry, None) => self.retry_all(run, key),
            (_, None) => Err(missing("shard")),
            (Verb::Retry | Verb::Unpark, Some(shard)) => {
                let is_replay = self.unpark(of(shard), key)?;
                Ok(("1 shard to be tried again by a worker of the run".to_owned(), is_replay))
            }
            (Verb::Split, Some(shard)) => {
                self.request(action.action, of(shard), &ShardAction::Split(None), key, until)
            }
            (Verb::Release, Some(shard)) => {
                self.request(action.action, of(shard), &ShardAction::Release, key, until)
            }
            (Verb::Handoff, Some(shard)) => {
                let to = receiver(action)?;
                self.request(action.action, of(shard), &ShardAction::HandOff(to), key, until)
            }
        }
    }

    /// Returns the command that does the same.
    fn command(
        &self,
        action: &Action,
        run: RunId,
        shard: Option<ShardId>,
    ) -> Result<String, Problem> {
        let run = format!("{:016x}", run.as_raw());
        let shard = shard.map(|shard| format!("{:016x}", shard.as_raw()));
        let needed = || shard.clone().ok_or_else(|| missing("shard"));
        let words = match action.action {
            Verb::Pause => format!("run pause {run}"),
            Verb::Resume => format!("run resume {run}"),
            Verb::Cancel => format!("run cancel {run}"),
            Verb::Retry if shard.is_none() => format!("retry {run} --all"),
            Verb::Retry | Verb::Unpark => format!("shard unpark {run} {}", needed()?),
            Verb::Split => format!("shard split {run} {}", needed()?),
            Verb::Release => format!("shard release {run} {}", needed()?),
            Verb::Handoff => match action.to.as_deref() {
                Some(to) => {
                    format!("handoff start {run} {} --to {:016x}", needed()?, id("to", Some(to))?)
                }
                None => format!("handoff start {run} {}", needed()?),
            },
        };
        let tenant = &self.shared.options.tenant_name;
        Ok(match tenant.as_str() {
            gossip::DEFAULT_TENANT => format!("gossip {words}"),
            // Quoted for a shell, because the name of a tenant may have any byte.
            tenant => format!("gossip {words} --tenant '{}'", tenant.replace('\'', "'\\''")),
        })
    }

    fn transition(
        &mut self,
        to: Transition,
        run: RunId,
        key: Option<&str>,
    ) -> Result<(String, bool), Problem> {
        let (now, op_id) = self.begin(key, to.verb() as u64, 0);
        let (made, message) = match to {
            Transition::Pause => (
                self.writer.pause_run(now, self.tenant, run, op_id),
                "paused; workers release their shards at their next lease renewal",
            ),
            Transition::Resume => (self.writer.resume_run(now, self.tenant, run, op_id), "resumed"),
            Transition::Cancel => (
                self.writer.cancel_run(now, self.tenant, run, op_id),
                "cancelled; its workers stop at their next lease renewal",
            ),
        };
        let made = made.map_err(|error| match error {
            RunTransitionError::BackendError(error) => unreachable(&error),
            RunTransitionError::RunNotFound | RunTransitionError::TenantMismatch { .. } => {
                Code::RunNotFound.into()
            }
            RunTransitionError::RunTerminal { .. } => Code::RunOver.into(),
            RunTransitionError::OpIdConflict(_) => Code::IdempotencyConflict.into(),
            error => Problem::new(Code::Refused).detail(error.to_string()),
        })?;
        Ok((message.to_owned(), made.is_replay()))
    }

    fn retry_all(&mut self, run: RunId, key: Option<&str>) -> Result<(String, bool), Problem> {
        let mut parked = Vec::new();
        let now = SystemClock::new().now();
        let filter = ShardFilter::parked();
        self.reader.list_shards_into(now, self.tenant, run, filter, &mut parked).map_err(
            |error| match error {
                gossip::coordination::GetRunError::BackendError(error) => unreachable(&error),
                _ => Code::RunNotFound.into(),
            },
        )?;
        // A damaged shard may be parked; only its repair shows it.
        parked.retain(|row| row.damage.is_none());
        // A replay only if every part was one: a change in part is a change.
        let (mut retried, mut is_replay) = (0_usize, !parked.is_empty());
        for row in parked.iter().take(RETRY_MAX) {
            match self.unpark(ShardKey::new(run, row.shard), key) {
                Ok(replay) => {
                    retried += 1;
                    is_replay &= replay;
                }
                // Another process was faster.
                Err(problem) if problem.code == Code::NotParked => is_replay = false,
                Err(problem) => return Err(problem),
            }
        }
        let remaining = parked.len().saturating_sub(RETRY_MAX);
        let more = match remaining {
            0 => String::new(),
            remaining => format!("; {remaining} remain, repeat for the next {RETRY_MAX}"),
        };
        let message = match retried {
            1 => format!("1 shard to be tried again by a worker of the run{more}"),
            retried => format!("{retried} shards to be tried again by a worker of the run{more}"),
        };
        Ok((message, is_replay))
    }

    fn unpark(&mut self, key: ShardKey, idempotency: Option<&str>) -> Result<bool, Problem> {
        let (now, op_id) = self.begin(idempotency, Verb::Unpark as u64, key.shard().as_raw());
        let made = self.writer.unpark_shard(now, self.tenant, key, op_id);
        let made = made.map_err(|error| match error {
            UnparkError::BackendError(error) => unreachable(&error),
            UnparkError::ShardNotFound | UnparkError::TenantMismatch { .. } => {
                Code::ShardNotFound.into()
            }
            UnparkError::RunTerminal { .. } => Code::RunOver.into(),
            UnparkError::NotParked { .. } => Problem::new(Code::NotParked),
            UnparkError::OpIdConflict(_) => Code::IdempotencyConflict.into(),
            error => Problem::new(Code::Refused).detail(error.to_string()),
        })?;
        Ok(made.is_replay())
    }

    fn request(
        &mut self,
        verb: Verb,
        key: ShardKey,
        action: &ShardAction,
        idempotency: Option<&str>,
        until: LogicalTime,
    ) -> Result<(String, bool), Problem> {
        let (now, op_id) = self.begin(idempotency, verb as u64, key.shard().as_raw());
        let made = self.writer.request_action(now, self.tenant, key, action, until, op_id);
        let made = made.map_err(|error| match error {
            RequestActionError::BackendError(error) => unreachable(&error),
            RequestActionError::ShardNotFound | RequestActionError::TenantMismatch { .. } => {
                Problem::new(Code::ShardNotFound)
            }
            RequestActionError::RunTerminal { .. } => Code::RunOver.into(),
            RequestActionError::NotLeased => Code::NotLeased.into(),
            RequestActionError::RequestPending => Code::RequestPending.into(),
            RequestActionError::OpIdConflict(_) => Code::IdempotencyConflict.into(),
            error => Problem::new(Code::Refused).detail(error.to_string()),
        })?;
        let message = "requested; takes effect at the owner's next lease renewal".to_owned();
        Ok((message, made.is_replay()))
    }

    /// Waits for the pace of a change, and returns its time and operation id: the same for the same
    /// idempotency key, operation and shard.
    fn begin(&self, key: Option<&str>, verb: u64, shard: u64) -> (LogicalTime, OpId) {
        // The writer is not paced itself: a pause between the read and the commit of a change
        // would lose races.
        for _ in 0..CHANGE_REQUESTS {
            self.shared.pace.wait();
        }
        let op_id = match key {
            None => fresh_op_id(),
            Some(key) => op_id(key, verb, shard),
        };
        (SystemClock::new().now(), op_id)
    }
}

/// The verbs that change the status of a run.
#[derive(Clone, Copy)]
enum Transition {
    Pause,
    Resume,
    Cancel,
}

impl Transition {
    const fn verb(self) -> Verb {
        match self {
            Self::Pause => Verb::Pause,
            Self::Resume => Verb::Resume,
            Self::Cancel => Verb::Cancel,
        }
    }
}

/// Returns the worker to which a shard is to be handed off.
pub(crate) fn receiver(action: &Action) -> Result<Option<WorkerId>, Problem> {
    let to = action.to.as_deref();
    to.map(|to| Ok(WorkerId::from_raw(id("to", Some(to))?))).transpose()
}

/// Derives an operation id from an idempotency key, the operation, and its shard if it has one.
fn op_id(key: &str, verb: u64, shard: u64) -> OpId {
    let mut hasher = blake3::Hasher::new_derive_key("gossip serve 2026 operation of a key");
    // The operation is part of the id, so that one key for two changes is no conflict in the
    // store.
    hasher.update(&verb.to_le_bytes());
    hasher.update(&shard.to_le_bytes());
    hasher.update(key.as_bytes());
    let mut number = [0_u8; 8];
    hasher.finalize_xof().fill(&mut number);
    OpId::from_raw(u64::from_le_bytes(number))
}

/// Parses an id of the API.
pub(crate) fn id(name: &'static str, text: Option<&str>) -> Result<u64, Problem> {
    let parsed = text.filter(|text| text.len() == 16).and_then(|text| {
        // The parser of the standard library would accept a plus sign.
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_hex)
    });
    parsed.ok_or_else(|| {
        Problem::new(Code::InvalidParameter).detail(format!("{name}: 16 hexadecimal digits"))
    })
}

fn missing(name: &'static str) -> Problem {
    Problem::new(Code::InvalidParameter).detail(format!("{name} is needed for this action"))
}

fn unreachable(error: &InfraError) -> Problem {
    Problem::new(Code::StoreUnreachable).detail(error.to_string())
}

fn described(kind: &'static str, record: &FailureRecord, format: KeyFormat) -> Failure {
    let item = match record.place.is_empty() {
        // Its key, if the worker stored no name for it.
        true => String::from_utf8_lossy(&format.text(&record.key)).into_owned(),
        false => record.place.to_string(),
    };
    let (exit_code, signal) = match record.exit {
        Some(ExitCause::Code(code)) => (Some(code), None),
        Some(ExitCause::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Failure {
        kind,
        shard: None,
        item,
        reason: None,
        exit_code,
        signal,
        tries: Some(record.tries),
        at: Some(record.at.as_raw()),
        host: text(&record.host),
        pid: (record.pid != 0).then_some(record.pid),
        message: text(&record.message),
        stderr: text(&String::from_utf8_lossy(&record.stderr)),
    }
}

fn without_record(parked: &Parked, format: KeyFormat) -> Failure {
    let start = String::from_utf8_lossy(&format.text(&parked.start)).into_owned();
    Failure {
        kind: "failed",
        shard: Some(format!("{:016x}", parked.shard.as_raw())),
        item: format!("from {start}"),
        reason: Some(parked.reason),
        exit_code: None,
        signal: None,
        tries: None,
        at: None,
        host: None,
        pid: None,
        message: parked.context.as_deref().map(str::to_owned),
        stderr: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_what_was_given_out() {
        let id = SideRecordId { group: 0xab, number: u64::MAX };
        for cursor in [
            FailureCursor::Parked(Some(ShardId::from_raw(u64::MAX))),
            FailureCursor::Unread(None),
            FailureCursor::Unread(Some(id)),
        ] {
            assert_eq!(FailureCursor::parse(&cursor.text()), Some(cursor));
        }
        for wrong in ["", "p", "x1", "u1", "u-", "pzz", "p11112222333344445", "ü", "u1-2-3"] {
            assert_eq!(FailureCursor::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn key_and_verb_and_shard_make_the_operation() {
        assert_eq!(op_id("a", 1, 5), op_id("a", 1, 5));
        for other in [op_id("a", 2, 5), op_id("b", 1, 5), op_id("a", 1, 6)] {
            assert_ne!(op_id("a", 1, 5), other);
        }
    }

    #[test]
    fn ids_have_sixteen_digits() {
        assert_eq!(id("run", Some("00000000000000ff")).unwrap(), 255);
        for wrong in
            [None, Some(""), Some("ff"), Some("+0000000000000ff"), Some("00000000000000fg")]
        {
            assert_eq!(id("run", wrong).unwrap_err().code, Code::InvalidParameter);
        }
    }
}
