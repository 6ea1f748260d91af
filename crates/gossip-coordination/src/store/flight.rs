//! One operation on its way, without I/O.
//!
//! A flight returns what it needs next ([`Step`]) and receives the result ([`Reply`]), until it is
//! done.
//! Attempts, backoff and lost replies are decided inside; a driver only carries steps to a store
//! and answers back, so the blocking and the asynchronous driver are a dozen lines each, and a
//! simulation can stop between any two steps.
//!
//! A flight is written as a straight `async` function that asks through [`Io`]. No executor is
//! behind it: [`Flight::step`] polls once, and the function is pending exactly when it asks.
//!
//! # Never
//! - wakes anybody, reads a clock, starts anything.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::engine::{Answer, Page, Read};
use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;

/// What a flight needs next.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a driver must handle every step")]
pub enum Step<A> {
    /// Answers to these questions, as [`Reply::Read`].
    Read(Vec<Read>),
    /// These transactions, each for itself, as [`Reply::Committed`].
    Commit(Vec<Txn>),
    /// Time to pass, as [`Reply::Waited`].
    Wait(u64),
    /// Nothing: this is the answer.
    Done(A),
}

/// What came of a step.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "one for each step that asks")]
pub enum Reply {
    /// Answers, in the order of the questions.
    Read(Result<Vec<Answer>, InfraError>),
    /// What became of the transactions, in their order.
    Committed(Vec<Result<CommitOutcome, InfraError>>),
    /// The time has passed.
    Waited,
}

/// An operation that answers `A` in the end.
pub struct Flight<'f, A> {
    route: Pin<Box<dyn Future<Output = A> + Send + 'f>>,
    io: Io,
}

impl<'f, A> Flight<'f, A> {
    /// A flight along `route`, which asks through the [`Io`] it is given.
    pub(super) fn new<F>(route: impl FnOnce(Io) -> F) -> Self
    where
        F: Future<Output = A> + Send + 'f,
    {
        let io = Io::default();
        Self { route: Box::pin(route(io.clone())), io }
    }

    /// Bytes that it takes while it is under way.
    #[cfg(test)]
    pub(super) fn byte_count(&self) -> usize {
        size_of_val(&*self.route)
    }

    /// What the flight needs next.
    ///
    /// # Panics
    ///
    /// If the last step was not answered by [`Flight::tell`], or the flight is done.
    pub fn step(&mut self) -> Step<A> {
        let polled = self.route.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(answer) => {
                debug_assert!(matches!(*self.io.slot(), Slot::Empty), "no question is left open");
                Step::Done(answer)
            }
            Poll::Pending => match std::mem::replace(&mut *self.io.slot(), Slot::Asked) {
                Slot::Asking(ask) => ask.step(),
                Slot::Empty | Slot::Asked | Slot::Reply(_) => {
                    panic!("a step is answered before the next one is asked for")
                }
            },
        }
    }

    /// Tells the flight the store's [`binding`](super::Store::binding), before each step. Without
    /// being told, it takes the store for one that binds nothing.
    pub fn tell_binding(&mut self, binding: Option<u64>) {
        *self.io.0.binding() = binding;
    }

    /// Tells the flight what came of its last step.
    ///
    /// # Panics
    ///
    /// If the flight has no question open: an answer that nobody asked for would be taken for the
    /// next one's.
    pub fn tell(&mut self, told: Reply) {
        let mut slot = self.io.slot();
        assert!(matches!(*slot, Slot::Asked), "a flight is told what it asked for, and once");
        *slot = Slot::Reply(told);
    }
}

impl<A> fmt::Debug for Flight<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").finish_non_exhaustive()
    }
}

/// How a flight asks. Its clones are one mailbox with room for one letter.
#[derive(Clone, Default)]
pub(super) struct Io(Arc<Mailbox>);

#[derive(Default)]
struct Mailbox {
    slot: Mutex<Slot>,
    /// As the driver told it last.
    binding: Mutex<Option<u64>>,
}

impl Mailbox {
    fn binding(&self) -> MutexGuard<'_, Option<u64>> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    Asking(Ask),
    /// The driver has the question.
    Asked,
    Reply(Reply),
}

enum Ask {
    Read(Vec<Read>),
    Commit(Vec<Txn>),
    Wait(u64),
}

impl Ask {
    fn step<A>(self) -> Step<A> {
        match self {
            Self::Read(reads) => Step::Read(reads),
            Self::Commit(txns) => Step::Commit(txns),
            Self::Wait(ticks) => Step::Wait(ticks),
        }
    }
}

/// What a driver that answers a different question shows.
const CROSSED: &str = "a driver answers the question that was asked";

impl Io {
    /// The store's number for what is bound now; `None` if it binds nothing.
    pub(super) fn binding(&self) -> Option<u64> {
        *self.0.binding()
    }

    /// Answers to `reads`, in their order and of one instant.
    pub(super) async fn read(&self, reads: Vec<Read>) -> Result<Answers, InfraError> {
        let asked = reads.len();
        assert!(asked > 0, "a trip to the store asks something");
        let Reply::Read(answers) = self.ask(Ask::Read(reads)).await else {
            unreachable!("{CROSSED}")
        };
        // Fewer answers than questions would shift each to the question before it.
        answers.map(|answers| {
            assert!(answers.len() == asked, "a store answers every question");
            Answers(answers.into_iter())
        })
    }

    /// The values of `keys`, in their order and of one instant.
    pub(super) async fn load(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, InfraError> {
        let count = keys.len();
        let mut answers = self.read(keys.into_iter().map(Read::Get).collect()).await?;
        let values: Vec<_> = (0..count).map(|_| answers.value()).collect();
        debug_assert!(answers.0.next().is_none(), "every answer was taken");
        Ok(values)
    }

    pub(super) async fn scan(&self, range: KeyRange, limit: usize) -> Result<Page, InfraError> {
        let page = self.read(vec![Read::Scan { range, limit }]).await?.page();
        assert!(page.len() <= limit, "a store keeps to the limit of a page");
        Ok(page)
    }

    /// Every key of `range`, page by page.
    pub(super) async fn scan_all(&self, range: KeyRange, page: usize) -> Result<Page, InfraError> {
        let (mut found, mut rest) = (Page::new(), range);
        loop {
            let next = self.scan(rest, page).await?;
            // Pages move forward, so the loop ends: a range holds finitely many keys.
            let first = next.first().map(|(key, _)| key);
            debug_assert!(
                first.is_none() || first != found.last().map(|(key, _)| key),
                "no page twice"
            );
            let more = next.last().filter(|_| next.len() >= page).map(|(key, _)| rest.after(key));
            found.extend(next);
            match more {
                Some(behind) => rest = behind,
                None => return Ok(found),
            }
        }
    }

    /// What became of each of `txns`, in their order.
    pub(super) async fn commit_each(
        &self,
        txns: Vec<Txn>,
    ) -> Vec<Result<CommitOutcome, InfraError>> {
        let sent = txns.len();
        assert!(sent > 0, "a trip to the store commits something");
        let Reply::Committed(outcomes) = self.ask(Ask::Commit(txns)).await else {
            unreachable!("{CROSSED}")
        };
        assert!(outcomes.len() == sent, "a store tells what became of every transaction");
        outcomes
    }

    pub(super) async fn commit(&self, txn: Txn) -> Result<CommitOutcome, InfraError> {
        self.commit_each(vec![txn]).await.pop().expect(CROSSED)
    }

    /// Waits, unless there is nothing to wait for.
    pub(super) async fn pause(&self, ticks: u64) {
        if ticks > 0 {
            self.ask(Ask::Wait(ticks)).await;
        }
    }

    fn ask(&self, ask: Ask) -> Pending<'_> {
        Pending { io: self, ask: Some(ask) }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        // The lock is held for one assignment; what a panic elsewhere leaves is whole.
        self.0.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answers of a read, taken one by one in the order of the questions.
pub(super) struct Answers(std::vec::IntoIter<Answer>);

impl Answers {
    pub(super) fn value(&mut self) -> Option<Versioned> {
        let Some(Answer::Value(value)) = self.0.next() else { unreachable!("{CROSSED}") };
        value
    }

    pub(super) fn page(&mut self) -> Page {
        let Some(Answer::Page(page)) = self.0.next() else { unreachable!("{CROSSED}") };
        page
    }

    pub(super) fn count(&mut self) -> u64 {
        let Some(Answer::Count(count)) = self.0.next() else { unreachable!("{CROSSED}") };
        count
    }
}

/// A question until it is answered.
struct Pending<'i> {
    io: &'i Io,
    ask: Option<Ask>,
}

impl Future for Pending<'_> {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Reply> {
        let mut slot = self.io.slot();
        if let Some(ask) = self.ask.take() {
            assert!(matches!(*slot, Slot::Empty), "a flight asks one thing at a time");
            *slot = Slot::Asking(ask);
            return Poll::Pending;
        }
        match std::mem::take(&mut *slot) {
            Slot::Reply(told) => Poll::Ready(told),
            other @ (Slot::Empty | Slot::Asking(_) | Slot::Asked) => {
                *slot = other;
                Poll::Pending
            }
        }
    }
}
