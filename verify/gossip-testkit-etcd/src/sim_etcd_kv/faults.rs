//! Faults that a test asks for: the next request of a kind, or a share of all, drawn from a seed.
//!
//! The same requests with the same faults give the same answers.

use std::collections::VecDeque;

use gossip_testkit::Rng;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is lost on its way: it never happens, and the caller cannot know.
    LoseRequest,
    /// It happens, and its answer is lost: the caller cannot know.
    LoseReply,
    /// The server refuses it at its gate, for certain.
    Refuse,
    /// It happens, fills the database, and is answered with `NOSPACE`; the alarm stays raised.
    FillSpace,
    /// So many milliseconds pass before it happens; leases may end meanwhile.
    Delay(u64),
    /// Every lease ends before it happens, as after a leader that stalled.
    ExpireLeases,
}

/// Kinds of request, to aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// Any request.
    Any,
    /// Ranges and transactions that only read.
    Read,
    /// Transactions that may write.
    Write,
    /// Everything about leases.
    Lease,
}

/// How often each fault is injected at random, per thousand requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// [`Fault::LoseRequest`].
    pub lose_request: u16,
    /// [`Fault::LoseReply`].
    pub lose_reply: u16,
    /// [`Fault::Refuse`].
    pub refuse: u16,
    /// [`Fault::ExpireLeases`].
    pub expire_leases: u16,
}

/// The faults that are still to come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Each waits for its target; those of one target come in the order they were asked for.
    planned: VecDeque<Planned>,
    random: Option<(FaultRates, Rng)>,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    /// Requests of the target that pass before it.
    skip: usize,
    target: Target,
    fault: Fault,
}

impl Faults {
    pub(crate) fn plan(&mut self, skip: usize, target: Target, fault: Fault) {
        self.planned.push_back(Planned { skip, target, fault });
    }

    pub(crate) fn set_random(&mut self, seed: u64, rates: FaultRates) {
        self.random = Some((rates, Rng::seeded(seed)));
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The fault of the next request, if it has one.
    pub(crate) fn next(&mut self, kind: Target) -> Option<Fault> {
        self.next_planned(kind).or_else(|| self.next_random())
    }

    fn next_planned(&mut self, kind: Target) -> Option<Fault> {
        let mut due = None;
        for (index, planned) in self.planned.iter_mut().enumerate() {
            let is_meant = planned.target == Target::Any || planned.target == kind;
            match planned.skip.checked_sub(usize::from(is_meant)) {
                Some(left) => planned.skip = left,
                None => due = due.or(Some(index)),
            }
        }
        self.planned.remove(due?).map(|planned| planned.fault)
    }

    fn next_random(&mut self) -> Option<Fault> {
        let (rates, rng) = self.random.as_mut()?;
        let mut draw = rng.below(PER_THOUSAND);
        let table = [
            (rates.lose_request, Fault::LoseRequest),
            (rates.lose_reply, Fault::LoseReply),
            (rates.refuse, Fault::Refuse),
            (rates.expire_leases, Fault::ExpireLeases),
        ];
        table.into_iter().find_map(|(rate, fault)| match draw.checked_sub(u64::from(rate)) {
            Some(left) => {
                draw = left;
                None
            }
            None => Some(fault),
        })
    }
}

const PER_THOUSAND: u64 = 1000;
