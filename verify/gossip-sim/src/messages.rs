//! Messages from a user worker to the oracle.
//!
//! The coordinator of a user worker must be `Send` like any other, and the oracle is not. So the
//! coordinator queues messages, and the simulator reads them before any other event happens. The
//! oracle therefore observes operations in their true order.

use std::collections::BTreeMap;
use std::rc::Rc;

use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey};
use gossip_coordination::Lease;
use gossip_coordination::protocol::OfferTerms;

use super::answers::Renewal;
use super::context::{Cx, Draft};
use super::effects::answer_of;
use super::op::{Ending, Granted, Label, LeaseRef, Op, Said, Terms, Verb};
use super::oracle::{Rule, Violation};
use super::port::SinkWrite;
use super::world::World;

/// A message to the oracle.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// An operation is about to be called.
    Begins(Box<Notice>),
    /// The last operation has returned.
    Ended(Box<Answered>),
    /// The sink has accepted the result of a key.
    Worked { lease: Lease, key: Vec<u8> },
}

/// An operation as its caller describes it.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) verb: Verb,
    pub(super) now: LogicalTime,
    pub(super) about: About,
    pub(super) op_id: OpId,
    /// The last key of the cursor.
    pub(super) last_key: Option<Vec<u8>>,
    /// Where parts begin, except for the first.
    pub(super) cuts: Vec<Vec<u8>>,
    pub(super) terms: Option<OfferTerms>,
    pub(super) clean: bool,
}

/// The subject of an operation.
#[derive(Clone, Debug)]
pub(super) enum About {
    Nothing,
    Run(RunId),
    Shard(ShardKey),
    Lease(Lease),
    Leases(Vec<Lease>),
}

impl Notice {
    pub(super) const fn new(verb: Verb, now: LogicalTime, about: About) -> Self {
        let (op_id, last_key, terms, clean) = (OpId::from_raw(0), None, None, false);
        Self { verb, now, about, op_id, last_key, cuts: Vec::new(), terms, clean }
    }

    pub(super) fn under(verb: Verb, now: LogicalTime, lease: &Lease, op_id: OpId) -> Self {
        Self { op_id, ..Self::new(verb, now, About::Lease(lease.clone())) }
    }
}

/// The result of an operation.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) ending: Ending,
    pub(super) label: Label,
    /// The shards that a split created.
    pub(super) born: Option<Vec<ShardId>>,
    pub(super) granted: Option<Grant>,
    /// The returned deadline of a renewed lease.
    pub(super) renewed: Option<u64>,
    pub(super) batch: Vec<Renewal>,
}

/// A grant as its worker received it.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) lease: Lease,
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
    pub(super) last_key: Option<Vec<u8>>,
    pub(super) attempts: u32,
}

/// State of a user worker for the lifetime of its process.
#[derive(Debug)]
pub(super) struct UserWorkerState {
    pub(super) cx: Cx,
    /// The operation in progress.
    op: Option<Rc<Op>>,
    /// The granted leases by token.
    grants: BTreeMap<u64, LeaseRef>,
}

impl UserWorkerState {
    pub(super) const fn new(cx: Cx) -> Self {
        Self { cx, op: None, grants: BTreeMap::new() }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Begins(notice) => self.begins(*notice),
            Message::Ended(answered) => self.ended(&answered),
            Message::Worked { lease, key } => {
                let oracle = &mut self.cx.shared.borrow_mut().oracle;
                let (known, number) = (self.grants.get(&token(&lease)), oracle.keys.number(&key));
                let Some((lease, number)) = known.zip(number) else { return };
                // Skipped keys do not count as progress.
                let worked = &mut oracle.worked[lease.grant as usize];
                *worked = if *worked == number { number + 1 } else { *worked };
            }
        }
    }

    fn begins(&mut self, notice: Notice) {
        let (now, batch) = (
            notice.now,
            match &notice.about {
                About::Leases(leases) => {
                    leases.iter().filter_map(|lease| self.lease(lease)).collect()
                }
                About::Nothing | About::Run(_) | About::Shard(_) | About::Lease(_) => Vec::new(),
            },
        );
        let op = self.cx.begin_at(now, self.draft(notice));
        self.cx.begin_batch(&op, &batch);
        self.op = Some(op);
    }

    fn draft(&self, notice: Notice) -> Draft {
        let said = {
            let keys = &self.cx.shared.borrow().oracle.keys;
            let number = |key: &Vec<u8>| keys.number(key).unwrap_or(u32::MAX - 1);
            let terms = notice.terms.map(|terms| Terms {
                handoff: terms.handoff.as_raw(),
                destination: terms.destination.as_raw(),
                until: terms.deadline.as_raw(),
            });
            let to = notice.last_key.as_ref().map(|key| number(key) + 1);
            let (cuts, clean) = (notice.cuts.iter().map(number).collect(), notice.clean);
            Said { to, cuts, terms, clean, foreign: true, ..Said::default() }
        };
        let (verb, op_id) = (notice.verb, notice.op_id);
        let nothing = Draft { op_id, said, ..Draft::new(verb) };
        match notice.about {
            About::Nothing | About::Leases(_) => nothing,
            About::Run(run) => {
                let run = self.cx.shared.borrow().oracle.run_of(self.cx.tenant, run);
                Draft { run, ..nothing }
            }
            About::Shard(key) => {
                let target = self.cx.find(key).map(|shard| LeaseRef::to(shard, key));
                Draft { target, ..nothing }
            }
            About::Lease(lease) => Draft { lease: self.lease(&lease), ..nothing },
        }
    }

    /// Returns the lease as the oracle knows it; without a grant if this process was not granted
    /// it.
    fn lease(&self, lease: &Lease) -> Option<LeaseRef> {
        let known = self.grants.get(&token(lease)).filter(|known| known.key == lease.key());
        let known = known.copied().or_else(|| {
            let shard = self.cx.find(lease.key())?;
            Some(LeaseRef { fence: lease.fence().as_raw(), ..LeaseRef::to(shard, lease.key()) })
        })?;
        Some(LeaseRef { sequence: lease.sequence().as_raw(), ..known })
    }

    fn ended(&mut self, answered: &Answered) {
        let Some(op) = self.op.take() else { return };
        if op.verb == Verb::RenewMany {
            self.cx.judge(|oracle| oracle.batch_ended(&op, &answered.batch));
        }
        let answer = answered.born.as_deref().map(answer_of);
        self.cx.finish(&op, answered.ending, answered.label, answer);
        if let Some(grant) = &answered.granted {
            self.granted(&op, grant);
        }
        let renewed = op.lease.zip(answered.renewed).filter(|_| !op.misled.get());
        if let Some((lease, deadline)) = renewed {
            self.cx.judge(|oracle| oracle.renewed(lease, op.renewed.get(), deadline));
        }
    }

    fn granted(&mut self, op: &Op, grant: &Grant) {
        let lease = &grant.lease;
        let (from, to, done) = {
            let keys = &self.cx.shared.borrow().oracle.keys;
            let from = keys.number(&grant.start).unwrap_or(u32::MAX);
            let done =
                grant.last_key.as_ref().map_or(Some(from), |key| Some(keys.number(key)? + 1));
            (from, keys.number(&grant.end).unwrap_or(u32::MAX), done.unwrap_or(u32::MAX))
        };
        let result = Granted {
            shard: self.cx.find(lease.key()).unwrap_or(u32::MAX),
            key: lease.key(),
            grant: op.granted.get().map_or(0, |granted| granted.grant),
            fence: lease.fence().as_raw(),
            deadline: lease.deadline().as_raw(),
            range: (from, to),
            done,
            attempts: grant.attempts,
            carried: 0,
        };
        self.cx.judge(|oracle| oracle.granted(op, result));
        let Granted { shard, key, grant, fence, .. } = result;
        if shard != u32::MAX {
            let token = token(lease);
            let lease = LeaseRef { shard, key, grant, fence, token, sequence: 0 };
            self.grants.insert(token, lease);
        }
    }

    /// Converts a result on its way to the sink to the oracle's numbers.
    pub(super) fn result(&self, lease: &Lease, key: &[u8]) -> Option<SinkWrite> {
        let known = self.lease(lease)?;
        let oracle = &self.cx.shared.borrow().oracle;
        let (run, number) = (oracle.shards[known.shard as usize].run, oracle.keys.number(key)?);
        let inside = number < oracle.runs[run as usize].key_count;
        let (shard, grant, fence) = (known.shard, known.grant, lease.fence().as_raw());
        inside.then_some(SinkWrite { run, keys: (number, number + 1), shard, grant, fence })
    }
}

const fn token(lease: &Lease) -> u64 {
    lease.token().as_raw()
}

impl World {
    /// Gives a user worker its clock and the list of runs before it is polled.
    pub(super) fn brief(&self, number: u32) {
        let process = &self.processes[number as usize];
        if process.user_worker.is_none() {
            return;
        }
        let shared = &mut *self.shared.borrow_mut();
        let runs = &mut shared.directory[process.tenant as usize];
        runs.retain(|run| !shared.oracle.runs[*run as usize].is_over());
        let runs = runs.iter().map(|run| shared.oracle.runs[*run as usize].id);
        let clock = shared.clocks[number as usize].read(shared.now);
        process.store.brief(clock, runs);
    }

    /// Reads the messages of a user worker after it was polled.
    pub(super) fn read_messages(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        if let Some(user_worker) = &mut process.user_worker {
            process.store.messages().into_iter().for_each(|message| user_worker.receive(message));
        }
    }

    /// Reports a user worker that awaits a future outside the simulation.
    pub(super) fn awaits_foreign_future(&self) {
        let why = "a worker awaits a future that the simulation does not provide".to_owned();
        self.shared.borrow_mut().judge(Err(Violation { rule: Rule::Panicked, why }));
    }
}
